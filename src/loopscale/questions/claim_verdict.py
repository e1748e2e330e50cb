"""The verdicts on the claims of a study: one family, with the correction for the number of claims.

The ratios of all claims are one family: Holm's correction, or Bonferroni's if a claim has a margin. The counts of
learnt runs are a family of their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopscale.questions.claim import ClaimSpec, Word
from loopscale.questions.claim_evidence import RatioIs, Sides
from loopscale.stats.learning_chances import LearningJudgement, judge_learning
from loopscale.stats.multiplicity import judge_claims
from loopscale.stats.verdict_rule import JUDGEMENTS, Judgement


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim."""

    word: Word
    """The verdict, corrected for the number of claims."""
    of_ratio: Judgement
    """The judgement of the ratio, with the correction."""
    of_learning: LearningJudgement
    """Whether the first side learns more often."""
    alone: Word
    """The verdict of the claim alone, without correction."""
    p: float
    adjusted_p: float


def judge(specs: Sequence[ClaimSpec], sides: Sequence[Sides[Any]]) -> list[Verdict]:
    """The verdicts on claims from the data of their sides, as one family."""
    ratios = judge_claims([data.looks or data.contrast for data in sides], [spec.rule for spec in specs])
    learning = judge_learning([data.learning for data in sides])
    return [
        Verdict(
            word=_word(spec, data, ratio.verdict, of_learning),
            of_ratio=ratio.verdict,
            of_learning=of_learning,
            alone=spec.word(_possible(ratio.alone, data.ratio_is)),
            p=ratio.p,
            adjusted_p=ratio.adjusted_p,
        )
        for spec, data, ratio, of_learning in zip(specs, sides, ratios, learning, strict=True)
    ]


def _word(spec: ClaimSpec, sides: Sides[Any], of_ratio: Judgement, of_learning: LearningJudgement) -> Word:
    if sides.ratio == math.inf:
        return "does not hold"
    if sides.no_logarithm:
        return spec.word("undecided", of_learning)
    if sides.blocked:
        return spec.word(None, of_learning)
    return "not run" if sides.ratio is None else spec.word(_possible(of_ratio, sides.ratio_is), of_learning)


def _possible(judgement: Judgement, ratio_is: RatioIs) -> Judgement:
    """The judgement if the ratio is bounded from one side: a ratio that is at most .5 shows that the first is less."""
    decided: dict[RatioIs, tuple[Judgement, ...]] = {
        "at most": ("less",),
        "at least": ("more",),
        "unknown": (),
    }
    return judgement if judgement in decided.get(ratio_is, JUDGEMENTS) else "undecided"
