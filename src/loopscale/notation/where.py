"""A study's condition, such as `training.window <= training.loops`: only arithmetic and comparisons."""

import ast
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from typing import Any

from loopscale.notation.mistakes import quoted
from loopscale.notation.settings import get

MOST_CHARACTERS, MOST_PARTS = 500, 100
ALLOWED = "write comparisons of settings, numbers and strings with and, or, not, in, + - * / // %"


OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
LookUp = Callable[[str], Any]


def holds(condition: str, tree: Mapping[str, Any] | LookUp) -> bool:
    """True if the condition is true of a trial's settings; `tree` may also be a function from a path to its value.

    Raises ValueError for an operation that is not allowed or fails, in the form `what is wrong; what would be right`.
    Raises KeyError(path) for a missing setting that the result depends on.
    """
    look_up = tree if callable(tree) else partial(get, tree)
    value = _value(parse(condition), look_up)
    if not isinstance(value, bool):
        raise ValueError(
            f"where gives {value!r}, neither true nor false; compare it with something, as in a <= b"
        )
    return value


def paths(condition: str) -> tuple[str, ...]:
    """Every dotted path in the condition."""
    return tuple(dict.fromkeys(_paths(parse(condition))))


def split(condition: str, tuned: Collection[str]) -> tuple[str, str]:
    """The condition in two: the parts between `and` that name no tuned setting, and the parts that name one."""
    tree = parse(condition)
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    groups: tuple[list[str], list[str]] = ([], [])
    for part in parts:
        text = ast.unparse(part)
        groups[not set(tuned).isdisjoint(_paths(part))].append(f"({text})" if len(parts) > 1 else text)
    about_cell, about_point = map(" and ".join, groups)
    return about_cell, about_point


@cache
def parse(condition: str) -> ast.expr:
    if len(condition) > MOST_CHARACTERS:
        raise ValueError(f"where is {len(condition)} characters long; write at most {MOST_CHARACTERS}")
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"where {condition!r} is not a condition; {ALLOWED}") from None
    if sum(1 for _ in ast.walk(tree)) > MOST_PARTS:
        raise ValueError(f"where has more than {MOST_PARTS} parts; write a shorter condition")
    return tree.body


def _paths(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute | ast.Name):
        if (path := ast.unparse(node)) not in CONSTANTS:
            yield path
        return
    for child in ast.iter_child_nodes(node):
        yield from _paths(child)


def _value(node: ast.expr, look_up: LookUp) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | float()):
            return node.value
        case ast.Name() | ast.Attribute():
            path = ast.unparse(node)
            return CONSTANTS[path] if path in CONSTANTS else look_up(path)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            return _apply(op, node, _value(node.left, look_up), _value(node.right, look_up))
        case ast.Compare(ops=ops) if all(type(op) in OPERATORS for op in ops):
            values = [_value(each, look_up) for each in (node.left, *node.comparators)]
            return all(
                bool(_apply(op, node, a, b)) for op, a, b in zip(ops, values, values[1:], strict=False)
            )
        case ast.BoolOp():
            combine = all if isinstance(node.op, ast.And) else any
            return combine(bool(_value(each, look_up)) for each in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, look_up)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List() | ast.Tuple():
            return [_value(each, look_up) for each in node.elts]
        case _:
            raise ValueError(f"where may not hold {ast.unparse(node)!r}; {ALLOWED}")


def _mixes(left: Any, right: Any) -> bool:
    """True for a truth value and a number. Python's True is 1, and a person who compares the two has made a mistake."""
    return all(isinstance(each, int | float) for each in (left, right)) and isinstance(
        left, bool
    ) is not isinstance(right, bool)


def _apply(op: ast.AST, node: ast.expr, left: Any, right: Any) -> Any:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (left, right))
    if any(_mixes(left, each) for each in (right if isinstance(right, list) else [right])):
        what = f"where compares {quoted(left)} with {quoted(right)} in {quoted(ast.unparse(node))}"
        raise ValueError(f"{what}; compare truth values with true or false, and numbers with numbers")
    if not numbers and not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        raise ValueError(
            f"where cannot compute {ast.unparse(node)!r} from {left!r} and {right!r}; use numbers there"
        )
    try:
        return OPERATORS[type(op)](left, right)
    except (TypeError, ZeroDivisionError, OverflowError) as problem:
        raise ValueError(
            f"where cannot compute {quoted(ast.unparse(node))} ({problem}); use other values there"
        ) from None
