"""Faults of a member's class that show before the class is used: missing methods and wrong signatures."""

import ast
import inspect
import re
from typing import Any

Fault = tuple[int, str, str]
"""The line in the file, the mistake and the remedy."""
NAMED = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.POSITIONAL_ONLY,
)
KIND = re.compile(r"[A-Za-z_][\w-]*")


def member_fault(member: type[Any], family: type[Any], source: bytes) -> Fault | None:
    """The first fault of a member of a family; None for a member that keeps to the interface.

    Parameters
    ----------
    source
        The content of the member's file.
    """
    lines = class_lines(source, member.__name__)
    line = lines.get("", 1)
    noun, name = family.noun(), member.__name__
    if not (isinstance(member.kind, str) and KIND.fullmatch(member.kind)):
        return (
            line,
            f"the kind {member.kind!r} is no name",
            f'write letters, digits and _, as in kind="{snake_case(name)}"',
        )
    if any(base.__module__ == "torch.nn.modules.module" for base in member.__mro__):
        what = f"the {noun} {name} is a torch.nn.Module too, but a {noun} holds settings and no weights"
        return (
            line,
            what,
            f"derive {name} from its other base alone, and write the module as a class of its own",
        )
    if "__init__" in vars(member):
        what = f"the {noun} {name} has its own __init__, but its settings are its annotated attributes"
        return lines.get("__init__", line), what, "write each setting in the class, as in width: int = 8"
    for method in sorted(getattr(member, "__abstractmethods__", ())):
        return line, f"the {noun} {name} has no {method}", f"write {_written(member, method)}"
    for variable in sorted(getattr(family, "__class_vars__", ())):
        if not variable.startswith("_") and not hasattr(member, variable):
            return line, f"the {noun} {name} has no {variable}", f"write {variable} = ... in the class"
    for method, own in vars(member).items():
        interface = _declared(member, family, method)
        if method.startswith("_") or interface is None or interface is own:
            continue
        if fault := _signature_fault(own, interface):
            what = f"{name}.{method} {fault}"
            return lines.get(method, line), what, f"write {_code(interface, method)}"
    return None


def _declared(member: type[Any], family: type[Any], method: str) -> Any:
    """The declaration of a method that the package calls: of the family, or an abstract method of a base class."""
    if (interface := inspect.getattr_static(family, method, None)) is not None:
        return interface
    for base in reversed(member.__mro__[1:]):
        declared = vars(base).get(method)
        if getattr(declared, "__isabstractmethod__", False):
            return declared
    return None


def snake_case(name: str) -> str:
    """The kind for the name of a class: `my_model` for MyModel, `gru_mixer` for GRUMixer."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower().strip("_")


def _signature_fault(own: Any, interface: Any) -> str:
    """Why the family's callers cannot use a method or a property; empty if they can."""
    if isinstance(interface, property):
        return "" if isinstance(own, property) or not callable(own) else "is a method, not a property"
    function, declared = _function(own), _function(interface)
    if not callable(declared):
        return ""
    if isinstance(own, property) or not callable(function):
        return "is no method"
    given = list(inspect.signature(declared).parameters.values())
    accepted = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in accepted.values()}
    open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    names = [parameter.name for parameter in given if parameter.kind in NAMED]
    taken = [name for name, parameter in accepted.items() if parameter.kind in NAMED]
    if not open_ended and taken[: len(names)] != names:
        return f"takes ({', '.join(taken)}), not ({', '.join(names)})"
    more = [accepted[name] for name in taken if name not in names]
    needed = [each.name for each in more if each.default is inspect.Parameter.empty]
    return f"needs {', '.join(needed)}, which no caller gives" if needed else ""


def _function(method: Any) -> Any:
    return getattr(method, "__func__", method)  # of a classmethod or a staticmethod


def _written(owner: type[Any], method: str) -> str:
    """A method or property of a family, or of a member's base class, as code."""
    return _code(inspect.getattr_static(owner, method), method)


def _code(declared: Any, method: str) -> str:
    if isinstance(declared, property):
        return f"@property def {method}(self)"
    names = inspect.signature(_function(declared)).parameters
    return f"def {method}({', '.join(names)})"


def class_lines(source: bytes, name: str) -> dict[str, int]:
    """The lines of a class (under an empty name) and of its methods."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = {each.name: each.lineno for each in node.body if isinstance(each, ast.FunctionDef)}
            return {"": node.lineno} | methods
    return {}
