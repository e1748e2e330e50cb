"""Failed tests of a contract in words: the member, the broken rule, the place, what was found, and the remedy."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from loopscale.contracts.remedies import remedy_of
from loopscale.core.config import Family
from loopscale.core.plugins import Plugin, PluginError, fault_of_plugin, member_place

LONGEST_FOUND = 200
"""Characters of a found value. Longer ones say less than the rule itself."""
MOST_NAMED_CASES = 4
"""Named cases of a broken rule."""
LINE_WIDTH = 100


class BrokenRule(NamedTuple):
    """One failed case."""

    member: str
    place: str
    """File and line."""
    fault: str
    """The broken rule, or the error that the member's own code raises."""
    case: str
    """The settings, the other member and the like, empty for the defaults. For an error, the rule under test."""
    found: str
    """The fault in words; empty if the rule says all."""
    remedy: str


def broken_rule(
    plugin: Plugin, module: str, test: str, case: str, parameters: Iterable[Any], problem: Any
) -> BrokenRule:
    """A failed test in words. `parameters` are the values of the case, and `problem` is its exception."""
    member = _member(plugin, [*parameters], case)
    family = next(base for base in reversed(member.__mro__) if Family in base.__bases__)
    named = f"{family.noun()} {member.kind}"
    rule = test.removeprefix("test_").replace("_", " ")
    if fault := problem if isinstance(problem, PluginError) else fault_of_plugin(problem):
        place = fault.file if fault.line is None else f"{fault.file}:{fault.line}"
        return BrokenRule(named, place, fault.what, rule, "", fault.remedy.partition(";")[0])
    remedy = remedy_of(module, test)
    place = member_place(plugin, member, remedy.method)
    settings = re.sub(rf"(^|-){re.escape(member.kind)}( |-|$)", r"\1", case).strip("- ")
    return BrokenRule(named, place, f"breaks the rule: {rule}", settings, _found(problem), remedy.text)


def _member(plugin: Plugin, parameters: list[Any], case: str) -> type[Family]:
    """The member under test: a parameter of the case, or the one whose kind the case names."""
    for each in parameters:
        owner = each if isinstance(each, type) else type(each)
        if owner in plugin.members:
            return owner
    named = [member for member in plugin.members if re.search(rf"\b{re.escape(member.kind)}\b", case)]
    return (named or list(plugin.members))[0]


def _found(problem: BaseException) -> str:
    """The fault in words; empty for an assertion that says no more than its rule."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if not isinstance(problem, AssertionError):
        return f"{type(problem).__name__}: {lines[0] if lines else ''}".rstrip(": ")
    if not lines:
        return ""
    if lines[0].startswith(("Tensor-likes are not", "Scalars are not")):
        return _difference("\n".join(lines))
    own = lines[0].partition("assert ")[0].strip()
    shown = own or lines[0].removeprefix("assert ")
    unclear = not own and (re.search(r"tensor\(|<|\(|\bTrue\b|\bFalse\b", shown))
    return "" if unclear or len(shown) > LONGEST_FOUND else shown


def _difference(text: str) -> str:
    """The message of `torch.testing.assert_close` in one line."""
    count = re.search(r"Mismatched elements: (\d+) / (\d+)", text)
    largest = re.search(r"[Aa]bsolute difference: ([\d.e+-]+|nan|inf)", text)
    parts = [f"{int(count[1]):,} of {int(count[2]):,} numbers differ"] if count else ["two numbers differ"]
    parts += [f"by up to {float(largest[1]):.2g}"] if largest else []
    return ", ".join(parts)


def in_words(broken: Iterable[BrokenRule]) -> Iterator[str]:
    """Lines for a terminal, one paragraph for each rule that a member breaks."""
    groups = dict[tuple[str, str, str, str], list[BrokenRule]]()
    for each in broken:
        groups.setdefault((each.place, each.member, each.fault, each.remedy), []).append(each)
    for (place, member, fault, remedy), cases in groups.items():
        yield f"{place}: {member}{' ' if fault.startswith('breaks') else ': '}{fault}"
        if found := next((each.found for each in cases if each.found), ""):
            yield from _wrapped(f"found: {found}")
        named = list(dict.fromkeys(each.case for each in cases if each.case))
        if named:
            more = f" and {len(named) - MOST_NAMED_CASES} more" if len(named) > MOST_NAMED_CASES else ""
            yield from _wrapped(f"cases: {'; '.join(named[:MOST_NAMED_CASES])}{more}")
        yield from _wrapped(f"remedy: {remedy}")
        yield ""


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        LINE_WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
