"""Verdicts of several claims of one study, with at most a 5 % chance of any false verdict.

Among all pairs of 8 level cells, single intervals give a false verdict in 35 to 45 of 100 studies. There are two
corrections:

- Holm's [@holm1979], if no claim has a margin of equivalence. The chance of any false verdict stays below 5 %, for
  every dependence between claims.
- Bonferroni's, if a claim has a margin. Holm relaxes the level after every verdict, because the verdict of a claim that
  truly differs cannot be false. With a margin every claim can be judged falsely, so Holm is invalid: the chance of any
  false verdict was 12 % in a simulation.

The family is the claims of the study file. A claim without data counts too, so that data for one claim never withdraw
the verdict of another.

The comparisons of a table are a family too. If the data choose which pairs the table lists, all pairs count. Among
level cells, the cell of lowest error is the lowest by chance. Holm's correction over the listed pairs then gives a
false verdict in up to 10 % of studies, and over all pairs in at most 5 % (docs/statistics.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from loopscale.stats.contrasts import ALPHA, Array
from loopscale.stats.verdict_rule import DIFFERENCE, DifferenceVerdict, VerdictRule


@runtime_checkable
class Evidence(Protocol):
    """The data of one claim: a `Contrast`, or the looks of `looks.ClaimLooks`."""

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference of log errors, without a correction for the number of claims."""
        ...

    def p(self, rule: VerdictRule = DIFFERENCE) -> float:
        """The smallest alpha at which `verdict` is not undecided."""
        ...

    def verdict(self, rule: VerdictRule = DIFFERENCE, alpha: float = ALPHA) -> DifferenceVerdict:
        """The verdict with a chance alpha to be false."""
        ...


@dataclass(frozen=True)
class AdjustedJudgement:
    """The verdict on one comparison of a family, with the correction and without."""

    low: float
    """The lower end of the 95 % interval of the difference of log errors, without correction; NaN without data."""
    high: float
    """The upper end of this interval."""
    alone: DifferenceVerdict
    """The verdict of this interval."""
    p: float
    """The p-value without correction."""
    adjusted_p: float
    """The p-value with the correction."""
    verdict: DifferenceVerdict
    """The verdict with the correction."""


def holm(p: Array, unlisted: int = 0) -> Array:
    """Holm's adjusted p-values, along the last axis. The family has `unlisted` more p-values, which are 1."""
    factors: Array = np.arange(p.shape[-1] + unlisted, unlisted, -1, dtype=np.float64)
    steps = np.sort(p, axis=-1) * factors
    highest: Array = np.maximum.accumulate(steps, axis=-1)
    adjusted = np.empty(p.shape)
    np.put_along_axis(adjusted, np.argsort(p, axis=-1, kind="stable"), np.minimum(highest, 1), axis=-1)
    return adjusted


def bonferroni(p: Array, unlisted: int = 0) -> Array:
    """Bonferroni's adjusted p-values, along the last axis. The family has `unlisted` more p-values."""
    return np.minimum(p * (p.shape[-1] + unlisted), 1)


def judge_claims(
    evidence: Sequence[Evidence | None],
    rules: Sequence[VerdictRule],
    alpha: float = ALPHA,
    unlisted: int = 0,
) -> tuple[AdjustedJudgement, ...]:
    """The verdicts of all claims of a study, or of all comparisons of a table.

    Parameters
    ----------
    evidence
        The data of each claim; None for a claim without data.
    rules
        The rule of each claim's verdict.
    alpha
        The allowed chance of any false verdict.
    unlisted
        The number of further claims of the family, without data. For a table, the pairs that the data could have
        chosen, but have not.
    """
    if not evidence:
        return ()
    pairs = list(zip(evidence, rules, strict=True))
    p = np.array([1.0 if data is None else data.p(rule) for data, rule in pairs])
    count = len(p) + unlisted
    if any(rule.room is not None for rule in rules):
        adjusted, alphas = bonferroni(p, unlisted), np.full(len(p), alpha / count)
    else:
        adjusted, alphas = holm(p, unlisted), np.empty(len(p))
        alphas[np.argsort(p, kind="stable")] = alpha / np.arange(count, unlisted, -1)
    verdicts: list[AdjustedJudgement] = []
    for place, (data, rule) in enumerate(pairs):
        if data is None:
            verdicts.append(AdjustedJudgement(np.nan, np.nan, "undecided", 1.0, 1.0, "undecided"))
            continue
        # A wider interval can change "level" to "less", so the verdict is that of the interval of the corrected level.
        stands = adjusted[place] <= alpha
        verdict = data.verdict(rule, float(alphas[place])) if stands else "undecided"
        low, high = data.interval()
        verdicts.append(
            AdjustedJudgement(low, high, data.verdict(rule), float(p[place]), float(adjusted[place]), verdict)
        )
    return tuple(verdicts)
