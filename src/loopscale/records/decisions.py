"""Decisions of `until: decided` as records: tags of a study's parent run, written before the ordered replicates start.

A tag holds one look at one claim or law: the data of the look, the word, and the ordered replicates. A later look adds
tags and replaces none.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from loopscale.records.model import STUDY, Note

DECISION = "decision/"
"""Prefix of the tags `decision/<seeds>/<question>`."""
LONGEST_TEXT = 500
"""Characters of a question's text in a tag. MLflow keeps 8,000 characters of a tag."""
DIGITS = 10
"""Significant digits of recorded numbers."""
Kind = Literal["claim", "law"]
Step = Literal["train", "decided", "futile", "not learnt", "most", "no data"]
"""What follows a look. train: more replicates. The other steps end the question: its verdict, no chance of a verdict,
nets on the plateau, the most replicates, or too few replicates with a value."""
FINAL: frozenset[str] = frozenset({"decided", "futile", "not learnt", "no data"})
"""Steps after which a question gets no more replicates. After `most`, a larger `until.most` gives more."""


@dataclass(frozen=True)
class Decision:
    """One look at one claim or law.

    Attributes
    ----------
    question
        The identity of the claim or law, with the evaluation that it is judged by.
    text
        The claim in words, or the name of the law.
    seeds
        The planned replicates of this look.
    runs
        The replicates with a value so far: the smallest number among the cells.
    estimate, low, high
        The ratio of a claim or the rate of a law, with the interval of this look; NaN without an interval.
    p, adjusted_p
        The p-value of a claim over all looks, without and with the correction for the number of claims. NaN for a law.
    word
        The verdict of the look, corrected for the number of claims.
    chance
        The chance of a verdict at the last look; NaN if it is not known.
    step
        What follows.
    replicates
        The replicates that each of `cells` gets in total from now on, with replacements of replicates without an error.
        0 if the look ordered none.
    cells
        The keys of the cells that the question concerns.
    ordered
        The new trainings that the question asks for.
    needed
        The further trainings that would decide the question if the estimate stays; NaN if the number is not known, and
        infinite above 1,000 replicates of a cell.
    family
        A hash of all claims and looks that were judged together.
    at
        The time of the record, in milliseconds since 1970.
    """

    question: str
    kind: Kind
    text: str
    seeds: int
    runs: int
    estimate: float
    low: float
    high: float
    p: float
    adjusted_p: float
    word: str
    chance: float
    step: Step
    replicates: int
    cells: tuple[str, ...]
    ordered: int
    needed: float
    family: str
    at: int = 0

    @property
    def tag(self) -> str:
        return f"{DECISION}{self.seeds}/{self.question}"

    @property
    def over(self) -> bool:
        """True if the question gets no more replicates."""
        return self.step in FINAL


def decision_note(decisions: Iterable[Decision]) -> Note:
    """The note that records the decisions of one look."""
    empty = Note(STUDY)
    tags = {decision.tag: json.dumps(_plain(decision) | {"at": empty.at}) for decision in decisions}
    return Note(STUDY, tags=tags, at=empty.at)


def decision_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that hold a decision."""
    return {name: text for name, text in tags.items() if name.startswith(DECISION)}


def recorded_decisions(tags: Mapping[str, str]) -> tuple[Decision, ...]:
    """The decisions among the tags of a parent run, in the order of the looks. Damaged tags are left out."""
    found: list[Decision] = []
    for text in decision_tags(tags).values():
        try:
            content = json.loads(text)
            numbers = {name: float(content[name]) for name in NUMBERS}
            counts = {name: int(content[name]) for name in COUNTS}
            words = {
                name: str(content[name]) for name in ("question", "kind", "text", "word", "step", "family")
            }
            found.append(Decision(**words, **numbers, **counts, cells=tuple(map(str, content["cells"]))))  # pyright: ignore[reportArgumentType]: texts stand for literals
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(sorted(found, key=lambda decision: (decision.seeds, decision.kind, decision.at)))


NUMBERS = ("estimate", "low", "high", "p", "adjusted_p", "chance", "needed")
COUNTS = ("seeds", "runs", "replicates", "ordered", "at")


def _plain(decision: Decision) -> dict[str, Any]:
    """JSON has neither NaN nor infinity, so such a number is its text, which `float` reads."""
    content = asdict(decision)
    numbers = {name: content[name] for name in NUMBERS}
    rounded = {
        name: float(f"{number:.{DIGITS}g}") if math.isfinite(number) else str(number)
        for name, number in numbers.items()
    }
    return content | rounded | {"text": decision.text[:LONGEST_TEXT]}
