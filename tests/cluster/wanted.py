"""For the tests of rendering: the examples, a request, and values that break careless quoting."""

from pathlib import Path

from loopscale.cluster.base import Request

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "cluster").glob("*.yaml"))
HOSTILE = [
    "two words",
    "it's",
    'a "quote"',
    "$(touch was-here)",
    "`id`; #x",
    "a\\b",
    "-n",
    "%s%j",
    "ä λ",
]
TEXT = "question: Is it so?  # yes\nnotes: |\n  tab\there, 'quotes' and \"quotes\": $(id)\n"


def request(**changes: object) -> Request:
    resources = {"cpu": 2.0, "gpu": 0.5, "memory": 4.0}
    settings = {
        "study": "algoformer/figure3",
        "text": TEXT,
        "digest": "0123456789abcdef",
        "resources": resources,
    }
    return Request(**settings | changes)  # pyright: ignore[reportArgumentType]
