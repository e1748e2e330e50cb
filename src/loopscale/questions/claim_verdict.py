"""The verdicts on the claims of a study: one family, with the correction for the number of claims.

The ratios of all claims are one family: Holm's correction, or Bonferroni's if a claim has a margin. The counts of
learnt runs are a family of their own.

Every comparison of two cells, or of a cell and an algorithm, is judged here: the claims of a study's file, and those
that a table makes on the spot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopscale.questions.claim import ClaimSpec, ClaimVerdict
from loopscale.questions.claim_evidence import RatioIs, Sides
from loopscale.stats.contrasts import ALPHA, deciding_replicates
from loopscale.stats.learning_chances import LearningVerdict, judge_learning
from loopscale.stats.multiplicity import judge_claims
from loopscale.stats.verdict_rule import DIFFERENCE_VERDICTS, DifferenceVerdict


@dataclass(frozen=True)
class ClaimJudgement:
    """The verdict on one claim, with the verdicts and the p-values behind it."""

    verdict: ClaimVerdict
    """The verdict, corrected for the number of claims."""
    of_ratio: DifferenceVerdict
    """The verdict on the ratio, with the correction."""
    of_learning: LearningVerdict
    """Whether the first side learns more often."""
    alone: ClaimVerdict
    """The verdict of the claim alone, without correction."""
    p: float
    adjusted_p: float
    replicates: int | None
    """The replicates of each cell that would decide an undecided claim, if the ratio stays the same. None above 1,000,
    without an interval, and for every other verdict."""


def judge(specs: Sequence[ClaimSpec], sides: Sequence[Sides[Any]], unlisted: int = 0) -> list[ClaimJudgement]:
    """The judgements of claims from the data of their sides, as one family.

    Parameters
    ----------
    unlisted
        The number of further claims of the family. For a table, the comparisons that the data could have chosen, but
        have not.
    """
    evidence = [data.looks or data.contrast for data in sides]
    ratios = judge_claims(evidence, [spec.rule for spec in specs], unlisted=unlisted)
    learning = judge_learning([data.learning for data in sides], unlisted=unlisted)
    family = len(specs) + unlisted
    judgements = list[ClaimJudgement]()
    for spec, data, ratio, of_learning in zip(specs, sides, ratios, learning, strict=True):
        verdict = _verdict(spec, data, ratio.verdict, of_learning)
        judgements.append(
            ClaimJudgement(
                verdict=verdict,
                of_ratio=ratio.verdict,
                of_learning=of_learning,
                alone=spec.verdict(_possible(ratio.alone, data.ratio_is)),
                p=ratio.p,
                adjusted_p=ratio.adjusted_p,
                replicates=_deciding_replicates(spec, data, family) if verdict == "undecided" else None,
            )
        )
    return judgements


def _deciding_replicates(spec: ClaimSpec, sides: Sides[Any], family: int) -> int | None:
    """The replicates that would decide a claim at the strictest level of the correction.

    Holm may allow a wider level. The strictest level holds for all results of the other claims.
    """
    if sides.contrast is None:
        return None
    alpha = ALPHA / family
    if sides.looks:
        alpha = float(sides.looks.schedule.alphas(alpha)[-1])
    needed = deciding_replicates(sides.contrast, spec.rule, 1 - alpha)
    if needed and sides.among_learnt:
        needed = math.ceil(needed * sides.replicates / sides.contrast.seeds)
    return needed


def _verdict(
    spec: ClaimSpec, sides: Sides[Any], of_ratio: DifferenceVerdict, of_learning: LearningVerdict
) -> ClaimVerdict:
    if sides.ratio == math.inf:
        return "does not hold"
    if sides.no_logarithm:
        return spec.verdict("undecided", of_learning)
    if sides.blocked:
        return spec.verdict(None, of_learning)
    return (
        "not run" if sides.ratio is None else spec.verdict(_possible(of_ratio, sides.ratio_is), of_learning)
    )


def _possible(verdict: DifferenceVerdict, ratio_is: RatioIs) -> DifferenceVerdict:
    """The verdict if the ratio is bounded from one side: a ratio that is at most .5 shows that the first is less."""
    decided: dict[RatioIs, tuple[DifferenceVerdict, ...]] = {
        "at most": ("less",),
        "at least": ("more",),
        "unknown": (),
    }
    return verdict if verdict in decided.get(ratio_is, DIFFERENCE_VERDICTS) else "undecided"
