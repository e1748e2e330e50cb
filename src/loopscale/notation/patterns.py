"""Regular expressions that a study's author writes, searched in time proportional to the text (RE2).

The driver searches the text of every error. Python's `re` would hang for hours on a pattern such as `(a+)+$`.
"""

import re
from functools import cache
from typing import Any

from loopscale.notation.mistakes import quoted


def check_pattern(pattern: str) -> None:
    """Raise ValueError with the mistake and the remedy for a text that is no pattern."""
    try:
        _compiled(pattern)
    except ValueError as problem:
        what = f"{quoted(pattern)} is no regular expression ({problem})"
        if _is_python(pattern):
            remedy = (
                "write a pattern of RE2, without look-around, references to groups, and repeats above 1000"
            )
        else:
            remedy = "escape its special characters by a backslash"
        raise ValueError(f"{what}; {remedy}") from None


def occurs(pattern: str, text: str) -> bool:
    """True if the pattern occurs in the text."""
    return _compiled(pattern).search(text) is not None


def _is_python(pattern: str) -> bool:
    """True if Python's `re` would accept the pattern."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


@cache
def _compiled(pattern: str) -> Any:
    # Imported here, because few studies have patterns.
    import re2 as untyped  # pyright: ignore[reportMissingTypeStubs]: RE2 has no stubs

    re2: Any = untyped
    options = re2.Options()
    options.log_errors = False  # RE2 would write on standard error
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        (reason,) = problem.args
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
    except UnicodeEncodeError:
        raise ValueError("it holds a byte that is not UTF-8") from None
