"""Decisions of `until: decided` as records: tags of a study's parent run, written before the ordered replicates start.

A tag holds one look at one claim or law: the data of the look, the verdict, and the ordered replicates. A later look
adds tags and replaces none.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from loopscale.records.model import DAMAGE, DECISION, STUDY, Note, tags_below

LONGEST_TEXT = 500
"""Characters of a question's text in a tag. MLflow keeps 8,000 characters of a tag."""
DIGITS = 10
"""Significant digits of recorded numbers."""
Kind = Literal["claim", "law"]
Step = Literal["train", "longer", "values", "decided", "futile", "not learnt", "most", "no data"]
"""The step after a look. `train` orders more replicates. `longer` orders trainings of twice the steps. `values` orders
the cells in reserve; the law's second question takes the place of the first one. The other steps end the question. The
reasons are a verdict, no chance of a verdict, nets on the plateau, the largest number of replicates, or missing
values."""
FINAL: frozenset[str] = frozenset({"values", "decided", "futile", "not learnt", "no data"})
"""Steps after which a question gets no more replicates. After `most`, a larger `until.most` gives more."""


@dataclass(frozen=True)
class Decision:
    """One look at one claim or law."""

    question: str
    """The identity of the claim or law. The identity contains the evaluation by which the claim or law is judged."""
    kind: Kind
    text: str
    """The claim in words, or the name of the law."""
    seeds: int
    """The planned replicates of this look."""
    runs: int
    """The replicates with a value so far: the smallest number among the cells."""
    estimate: float
    """The ratio of a claim, or the rate of a law."""
    low: float
    """The lower end of the interval of this look; NaN without an interval."""
    high: float
    """The upper end of this interval."""
    p: float
    """The p-value of a claim over all looks, without correction. NaN for a law."""
    adjusted_p: float
    """The same p-value, corrected for the number of claims."""
    verdict: str
    """The verdict of the look, corrected for the number of claims."""
    chance: float
    """The chance of a verdict at the last look; NaN if the chance is unknown."""
    step: Step
    """The step that follows the look."""
    replicates: int
    """The total number of replicates of each cell in `cells` from now on. Replacements of replicates without an error
    count. 0 if the look orders none."""
    cells: tuple[str, ...]
    """The keys of the cells of the question. After `longer`, the keys of all cells that are trained for longer. After
    `values`, the keys of the cells in reserve."""
    ordered: int
    """The new trainings that the question asks for."""
    needed: float
    """The further trainings that would decide the question if the estimate stays the same. NaN if the number is
    unknown. Infinite above 1,000 replicates of a cell."""
    family: str
    """A hash of all claims and looks that were judged together."""
    learnt: str = ""
    """The learnt runs of each side of a claim, as in `5 of 6 and 6 of 6`. Empty if all have learnt."""
    steps_factor: int = 1
    """The steps of the judged runs over the steps of the study; see `until.steps`."""
    at: int = 0
    """The time of the record, in milliseconds since 1970."""

    @property
    def tag(self) -> str:
        longer = f"x{self.steps_factor}" if self.steps_factor > 1 else ""
        return f"{DECISION}{self.seeds}{longer}/{self.question}"

    @property
    def next_factor(self) -> int:
        """The factor of the steps of the runs at the next look."""
        return self.steps_factor * (2 if self.step == "longer" else 1)

    @property
    def over(self) -> bool:
        """True if the question gets no more replicates."""
        return self.step in FINAL

    @property
    def end(self) -> str:
        """What this look meant for its question, in words."""
        ends: dict[Step, str] = {
            "decided": f"decided at the look of {self.seeds} replicates"
            + (f" (learnt: {self.learnt})" if self.learnt else ""),
            "futile": f"given up. {self.why_futile}",
            "not learnt": f"stopped at {self.runs} replicates, because "
            + (f"only {self.learnt} runs have learnt" if self.learnt else "runs stand on the plateau"),
            "most": f"stopped at {self.runs} replicates, the most that the study allows",
            "no data": "stopped, because too few runs have a value",
            "values": "the cells in reserve were ordered",
        }
        ordered = f"{self.ordered:,} more training{'' if self.ordered == 1 else 's'}"
        return ends.get(self.step, f"open after the look of {self.seeds} replicates, which ordered {ordered}")

    @property
    def why_futile(self) -> str:
        """Why a claim or law was given up, and what its verdict would cost."""
        chance = f"the chance of a verdict was {self.chance:.0%} after {self.runs} replicates"
        if not math.isfinite(self.needed):
            return f"Futile: {chance}, and the estimate names no number of runs that would decide"
        return f"Futile: {chance}. A verdict would take about {self.needed:,.0f} more runs"


def decision_note(decisions: Iterable[Decision]) -> Note:
    """The note that records the decisions of one look."""
    empty = Note(STUDY)
    tags = {decision.tag: json.dumps(_plain(decision) | {"at": empty.at}) for decision in decisions}
    return Note(STUDY, tags=tags, at=empty.at)


def recorded_decisions(tags: Mapping[str, str]) -> tuple[Decision, ...]:
    """The decisions among the tags of a parent run, in the order of the looks. Damaged tags are left out."""
    found: list[Decision] = []
    for text in tags_below(DECISION, tags).values():
        try:
            content = json.loads(text)
            numbers = {name: float(content[name]) for name in NUMBERS}
            counts = {name: int(content[name]) for name in COUNTS} | {
                "steps_factor": int(content.get("steps_factor", 1))
            }
            words = {name: str(content[name]) for name in ("question", "kind", "text", "step", "family")}
            words |= {"verdict": str(content[VERDICT_KEY]), "learnt": str(content.get("learnt", ""))}
            found.append(Decision(**words, **numbers, **counts, cells=tuple(map(str, content["cells"]))))  # pyright: ignore[reportArgumentType]: texts stand for literals
        except DAMAGE:
            continue
    return tuple(sorted(found, key=_order))


def _order(decision: Decision) -> tuple[int, int, str, int]:
    return decision.steps_factor, decision.seeds, decision.kind, decision.at


def order_words(decisions: Sequence[Decision], replicates: int) -> str:
    """The runs that looks have ordered, and why: `looks ordered 4 replicates for 1 open question`.

    Parameters
    ----------
    replicates
        The replicates of a cell before the first look.
    """
    ordered = Counter[tuple[int, str]]()
    for decision in decisions:
        for key in decision.cells:
            of_cell = decision.next_factor, key
            ordered[of_cell] = max(ordered[of_cell], decision.replicates)
    parts = list[str]()
    reserve = {key: each.replicates for each in decisions if each.step == "values" for key in each.cells}
    if reserve:
        laws = len({each.question for each in decisions if each.step == "values"})
        parts.append(
            f"{len(reserve)} cells in reserve with {sum(reserve.values()):,} replicates for {laws} open "
            f"law{'s' * (laws > 1)}"
        )
    for factor in sorted({factor for factor, _ in ordered}):
        first = replicates if factor == 1 else 0
        runs = sum(max(0, count - first) for (each, _), count in ordered.items() if each == factor)
        step = "train" if factor == 1 else "longer"
        asking = [each for each in decisions if each.next_factor == factor and each.step in ("train", step)]
        verdicts = {
            each.question: each.verdict for each in reversed(asking)
        }  # the verdict of the first order
        unlearnt = sum(verdict == "not learnt" for verdict in verdicts.values())
        open_ones, few = _questions(len(verdicts) - unlearnt, "open "), _questions(unlearnt)
        named = " and ".join(filter(None, (open_ones, few and f"{few} with too few learnt runs")))
        kind = "replicates" if factor == 1 else f"trainings of {factor} times the steps"
        if runs:
            parts.append(f"{runs:,} {kind} for {named}")
    return f"looks ordered {'; '.join(parts)}" if parts else ""


def _questions(count: int, kind: str = "") -> str:
    """`2 open questions`; empty without any."""
    return f"{count} {kind}question{'s' * (count > 1)}" if count else ""


def answering_factors(
    decisions: Iterable[Decision], finished: Mapping[str, Collection[int]]
) -> dict[str, int]:
    """The steps of the runs that answer for each cell, over the steps of the study.

    The longest ordered trainings answer, as soon as every cell of their order has a finished one. Before, the cells of
    the order would be compared after unequal steps.

    Parameters
    ----------
    finished
        The factors of the finished replicates, by the key of the cell.
    """
    factors = dict.fromkeys(finished, 1)
    orders = [decision for decision in decisions if decision.step == "longer"]
    for order in sorted(orders, key=lambda decision: decision.next_factor):
        cells = [key for key in order.cells if key in finished]
        if all(order.next_factor in finished[key] for key in cells):
            factors |= {key: max(factors[key], order.next_factor) for key in cells}
    return factors


NUMBERS = ("estimate", "low", "high", "p", "adjusted_p", "chance", "needed")
VERDICT_KEY = "word"
"""The key of the verdict in the tags of a store."""
COUNTS = ("seeds", "runs", "replicates", "ordered", "at")


def _plain(decision: Decision) -> dict[str, Any]:
    """The decision as JSON. JSON has neither NaN nor infinity, so both become texts, and `float` reads these texts."""
    content = asdict(decision)
    content[VERDICT_KEY] = content.pop("verdict")
    numbers = {name: content[name] for name in NUMBERS}
    rounded = {
        name: float(f"{number:.{DIGITS}g}") if math.isfinite(number) else str(number)
        for name, number in numbers.items()
    }
    return content | rounded | {"text": decision.text[:LONGEST_TEXT]}
