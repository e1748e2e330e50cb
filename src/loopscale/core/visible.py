"""Text that somebody else wrote, made safe to show: a terminal obeys what it is sent."""

import re

UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]")
"""Control characters but for tab and newline, what turns the direction of reading around, and halves of characters."""


def visible(text: str) -> str:
    """The text with its control characters written out, as in `\\u001b`."""
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
