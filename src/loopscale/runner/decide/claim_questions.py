"""The claims of a running study: the verdicts of a look, and what would decide an open claim.

`loopscale.questions` gives the evidence and the verdict, as in the reports. Here is what only a look needs: whether the
claim is over, the chance of a verdict, and the runs that a verdict would take.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from loopscale.questions.claim import FINAL_WORDS, VERDICTS_OF_LEARNING, ClaimSpec
from loopscale.questions.claim_evidence import Sides, compare_sides
from loopscale.questions.claim_verdict import Verdict, judge
from loopscale.questions.until import question_hash
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.live_runs import LiveCell, LiveRuns
from loopscale.runner.decide.question import MOST_NEEDED, Judged, learnt
from loopscale.stats.contrasts import ALPHA, deciding_replicates
from loopscale.stats.learning_chances import PRIOR_COUNT
from loopscale.stats.looks import LookSchedule
from loopscale.studies.spec import Study


class ClaimQuestions:
    """The claims of a study."""

    def __init__(
        self,
        study: Study,
        schedule: LookSchedule,
        cell_runs: Mapping[str, CellRun],
        present_runs: Callable[[], LiveRuns],
    ) -> None:
        self.study, self.schedule, self._cell_runs, self._present_runs = (
            study,
            schedule,
            cell_runs,
            present_runs,
        )
        plain = study.model_dump(mode="json")
        self.identities = [question_hash(claim, plain) for claim in plain["claims"]]
        self.texts = [claim.text for claim in study.claims]
        self._cells = [self._cells_of(claim) for claim in study.claims]
        """The cells of each claim. The same cell after two numbers of loops stands here once."""

    def cells(self) -> list[tuple[CellRun, ...]]:
        """The cells that each claim concerns, each once."""
        return self._cells

    def judge(self) -> list[Judged]:
        """The verdicts on all claims from the present runs."""
        claims, runs = self.study.claims, self._present_runs()
        sides = [compare_sides(runs, claim) for claim in claims]
        verdicts = judge(claims, sides)
        alphas = (
            self._alpha(verdicts),
            ALPHA / max(1, sum(each.of_learning == "undecided" for each in verdicts)),
        )
        return [
            self._judged(number, data, verdict, *alphas)
            for number, (data, verdict) in enumerate(zip(sides, verdicts, strict=True))
        ]

    def _alpha(self, verdicts: Sequence[Verdict]) -> float:
        """The level at which an open claim is judged next: Holm's, or Bonferroni's if a claim has a margin."""
        left = len(verdicts)
        if all(claim.rule.room is None for claim in self.study.claims):
            left -= sum(verdict.of_ratio != "undecided" for verdict in verdicts)
        return ALPHA / max(left, 1)

    def _judged(
        self, number: int, sides: Sides[LiveCell], verdict: Verdict, alpha: float, alpha_of_learning: float
    ) -> Judged:
        claim, looks, learning = self.study.claims[number], sides.looks, sides.learning
        cells, word = self._cells[number], verdict.word
        counted = learnt(cells)
        low, high = looks.interval() if looks else (math.nan, math.nan)
        present = looks.contrasts[-1] if looks else None
        chances, needed = [math.nan], [math.nan]
        if looks:
            chances.append(looks.chance(claim.rule, alpha))
        if looks and present and word == "undecided":
            level = 1 - float(looks.schedule.alphas(alpha)[-1])
            seeds = deciding_replicates(present, claim.rule, level, MOST_NEEDED)
            rate = present.seeds / sides.valued
            needed.append(len(cells) * (math.ceil(seeds / rate) - sides.valued) if seeds else math.inf)
        if learning and word in ("undecided", "not learnt"):
            chances.append(learning.chance(alpha_of_learning))
            more = learning.deciding_runs(alpha_of_learning) - learning.runs[-1]
            needed.append(2 * math.ceil(more) if math.isfinite(more) else math.inf)
        ratio_over = looks.is_futile(claim.rule, alpha) if looks else not self._promises_a_ratio(sides)
        return Judged(
            identity=self.identities[number],
            kind="claim",
            text=claim.text,
            cells=cells,
            valued=sides.valued,
            looked=looks is not None or sides.blocked,
            word=word,
            # Learnt runs may still decide the ratio after the counts of learnt runs are decided.
            decided=word in FINAL_WORDS and (word not in VERDICTS_OF_LEARNING.values() or ratio_over),
            futile=ratio_over and (not learning or learning.is_futile(alpha_of_learning)),
            falling=counted.mostly_unfinished,
            chance=float(np.fmax.reduce(chances)),
            estimate=math.exp(present.difference) if present else math.nan,
            low=_exp(low),
            high=_exp(high),
            p=verdict.p,
            adjusted_p=verdict.adjusted_p,
            needed=float(np.fmin.reduce(needed)),
            learnt="" if counted.all or not claim.gated else sides.learnt_words,
        )

    def _promises_a_ratio(self, sides: Sides[LiveCell]) -> bool:
        """True if a net of each side has learnt at a seed, and the most replicates will probably give a ratio."""
        share = (sides.compared + PRIOR_COUNT) / (sides.valued + 2 * PRIOR_COUNT)
        return sides.compared > 0 and share * self.schedule.seeds[-1] >= self.schedule.seeds[0]

    def _cells_of(self, claim: ClaimSpec) -> tuple[CellRun, ...]:
        pairs = claim.pairs([run.cell for run in self._cell_runs.values()])
        keys = [key for pair in pairs for key in dict.fromkeys(cell.key for cell in pair)]
        return tuple(self._cell_runs[key] for key in keys)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if not math.isnan(value) else math.nan
