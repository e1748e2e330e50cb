"""The verdicts on the claims of a study: one family, with the correction for the number of claims.

The ratios of all claims are one family: Holm's correction, or Bonferroni's if a claim has a margin. The counts of
learnt runs are a family of their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopscale.questions.claim import ClaimSpec, ClaimVerdict
from loopscale.questions.claim_evidence import RatioIs, Sides
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


def judge(specs: Sequence[ClaimSpec], sides: Sequence[Sides[Any]]) -> list[ClaimJudgement]:
    """The judgements of claims from the data of their sides, as one family."""
    ratios = judge_claims([data.looks or data.contrast for data in sides], [spec.rule for spec in specs])
    learning = judge_learning([data.learning for data in sides])
    return [
        ClaimJudgement(
            verdict=_verdict(spec, data, ratio.verdict, of_learning),
            of_ratio=ratio.verdict,
            of_learning=of_learning,
            alone=spec.verdict(_possible(ratio.alone, data.ratio_is)),
            p=ratio.p,
            adjusted_p=ratio.adjusted_p,
        )
        for spec, data, ratio, of_learning in zip(specs, sides, ratios, learning, strict=True)
    ]


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
