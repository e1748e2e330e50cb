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
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from loopscale.stats.contrasts import ALPHA, Array, Judgement


@runtime_checkable
class Evidence(Protocol):
    """The data of one claim: a `Contrast`, or the looks of `looks.ClaimLooks`."""

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference of log errors, without a correction for the number of claims."""
        ...

    def p(self, margin: float | None = None) -> float:
        """The smallest alpha at which `verdict` is not undecided."""
        ...

    def verdict(self, margin: float | None = None, alpha: float = ALPHA) -> Judgement:
        """The verdict with a chance alpha to be false."""
        ...


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict of one claim of a family.

    Attributes
    ----------
    low, high
        The 95 % interval of the difference of log errors, without correction; NaN without data.
    alone
        The verdict of this interval.
    p, adjusted_p
        The p-values without and with the correction.
    verdict
        The verdict with the correction.
    """

    low: float
    high: float
    alone: Judgement
    p: float
    adjusted_p: float
    verdict: Judgement


def holm(p: Array) -> Array:
    """Holm's adjusted p-values, along the last axis."""
    factors: Array = np.arange(p.shape[-1], 0, -1, dtype=np.float64)
    steps = np.sort(p, axis=-1) * factors
    highest: Array = np.maximum.accumulate(steps, axis=-1)
    adjusted = np.empty(p.shape)
    np.put_along_axis(adjusted, np.argsort(p, axis=-1, kind="stable"), np.minimum(highest, 1), axis=-1)
    return adjusted


def bonferroni(p: Array) -> Array:
    """Bonferroni's adjusted p-values, along the last axis."""
    return np.minimum(p * p.shape[-1], 1)


def judge_claims(
    evidence: Sequence[Evidence | None], margins: Sequence[float | None], alpha: float = ALPHA
) -> tuple[ClaimVerdict, ...]:
    """The verdicts of all claims of a study.

    Parameters
    ----------
    evidence
        The data of each claim; None for a claim without data.
    margins
        The margin of equivalence of each claim; None if "level" is no verdict of the claim.
    alpha
        The allowed chance of any false verdict.
    """
    if not evidence:
        return ()
    pairs = list(zip(evidence, margins, strict=True))
    p = np.array([1.0 if data is None else data.p(margin) for data, margin in pairs])
    count = len(p)
    if any(margin is not None for margin in margins):
        adjusted, alphas = bonferroni(p), np.full(count, alpha / count)
    else:
        adjusted, alphas = holm(p), np.empty(count)
        alphas[np.argsort(p, kind="stable")] = alpha / np.arange(count, 0, -1)
    verdicts: list[ClaimVerdict] = []
    for place, (data, margin) in enumerate(pairs):
        if data is None:
            verdicts.append(ClaimVerdict(np.nan, np.nan, "undecided", 1.0, 1.0, "undecided"))
            continue
        # A wider interval can change "level" to "less", so the verdict is that of the interval of the corrected level.
        stands = adjusted[place] <= alpha
        verdict = data.verdict(margin, float(alphas[place])) if stands else "undecided"
        low, high = data.interval()
        verdicts.append(
            ClaimVerdict(low, high, data.verdict(margin), float(p[place]), float(adjusted[place]), verdict)
        )
    return tuple(verdicts)
