"""Safe display of text from other people. A terminal would execute control characters in such text."""

import contextlib
import re
import sys

from loopscale.redaction import redacted

UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]")
"""Control characters except tab and newline, marks that change the reading direction, and lone surrogates."""


def visible(text: str) -> str:
    """The text with every control character written as an escape, such as `\\u001b`."""
    return UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters with `...` at the end."""
    return text if len(text) <= most else text[: most - 3] + "..."


def last_line(text: str) -> str:
    """The last line that is not empty: of a traceback or an error message, usually the reason. Empty without a line."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def tell(text: str) -> None:
    """Print a line of progress or a warning on standard error, without passwords.

    A closed terminal or a full disk of standard error ends no study.
    """
    with contextlib.suppress(OSError):
        print(visible(redacted(text)), file=sys.stderr, flush=True)
