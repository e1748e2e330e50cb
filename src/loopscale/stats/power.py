"""The chance of each verdict of a planned claim or law, and the replicates for a chance of 80 %.

The functions that judge a real study judge simulated studies here:

- A claim: `contrasts.half_pooled` and `Contrasts.verdicts`. Only the mean and the variances are drawn, whose
  distributions are known (normal, chi-square). This takes milliseconds. If some runs do not learn, the number of seeds
  with a difference is beta-binomial, because the chance to learn itself is not known exactly.
- A law of two parameters: `verdict_rule.judge_rates` on the interval of a straight line, with the noise of the
  replicates.
- A law along a curve: `verdict_rule.judge_rates` on Student's interval of the mean rate, because each run has a rate.
- Any other law: `simulate_law` draws studies and hands the runs to the caller's judge, which fits forms and floors.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use
from numpy.typing import NDArray

from loopscale.stats.contrasts import (
    ALPHA,
    PRIOR,
    Array,
    Contrasts,
    common_noise,
    half_pooled,
    half_widths,
    pool,
    prior_of_mean,
)
from loopscale.stats.fitting import EFFICIENCY
from loopscale.stats.forms.base import Form, variants
from loopscale.stats.looks import LookSchedule
from loopscale.stats.verdict_rule import (
    DIFFERENCE,
    DIFFERENCE_VERDICTS,
    LEAST_VALUES,
    RATE_VERDICTS,
    VerdictRule,
    Verdicts,
    judge_rates,
)

POWER = 0.8
"""The wanted chance of a verdict."""
OFF = 0.25
"""The share by which theory is off in the second question of a plan."""
DRAWS = 10_000
UNLIKELY = 1e-6
"""Chances below this are left out."""
MOST_PLANNED = 4096


@dataclass(frozen=True)
class ReplicateNoise:
    """The noise of a run's log error."""

    sd: float
    """Standard deviation between learnt replicates, without the effect of the seed on all cells."""
    seed_sd: float = 0.0
    """Standard deviation of the effect of a seed on all cells."""
    learnt: float = 1.0
    """The chance that a run learns."""
    gap: float = 0.0
    """The mean log error of runs that do not learn, minus the mean log error of runs that learn."""
    plateau_sd: float = 0.0
    """Standard deviation between runs that do not learn."""

    @classmethod
    def of(cls, logs: Array, learnt: NDArray[np.bool_] | None = None) -> "ReplicateNoise | None":
        """The noise of earlier runs.

        Parameters
        ----------
        logs
            Log errors [cells, seeds], NaN for missing runs.
        learnt
            True for each run that has learnt [cells, seeds]; None if all have.

        Returns
        -------
        ReplicateNoise or None
            None if no cell has two learnt replicates.
        """
        runs = np.isfinite(logs)
        learnt = runs if learnt is None else learnt & runs
        table = np.where(learnt, logs, np.nan)
        total = pool([row[np.isfinite(row)] for row in table])
        if total is None:
            return None
        common, freedom = common_noise(table)
        own = float(common) if freedom > 0 else total.variance
        stuck = runs & ~learnt
        gaps = [
            row[late].mean() - row[good].mean()
            for row, late, good in zip(logs, stuck, learnt, strict=True)
            if late.any() and good.any()
        ]
        plateau = pool([row[late] for row, late in zip(logs, stuck, strict=True)])
        return cls(
            sd=math.sqrt(own),
            seed_sd=math.sqrt(max(total.variance - own, 0.0)),
            learnt=float(learnt.sum() / runs.sum()),
            gap=float(np.mean(gaps)) if gaps else 0.0,
            plateau_sd=math.sqrt(plateau.variance) if plateau else 0.0,
        )

    @property
    def total(self) -> float:
        """Standard deviation between learnt replicates of one cell."""
        return math.hypot(self.sd, self.seed_sd)

    def draw(self, rng: np.random.Generator, means: Array, replicates: int, draws: int) -> Array:
        """Log errors [draws, cells, replicates] of cells with these means [cells] of learnt runs."""
        shape = draws, len(means), replicates
        logs = means[:, None] + self.sd * rng.standard_normal(shape)
        if self.learnt < 1:
            stuck = means[:, None] + self.gap + self.plateau_sd * rng.standard_normal(shape)
            learn = rng.random(shape) < self.learnt
            logs = np.where(learn, logs, stuck)
        if self.seed_sd:
            logs += self.seed_sd * rng.standard_normal((draws, 1, replicates))
        return logs


@dataclass(frozen=True)
class PlannedClaim:
    """A planned comparison of two cells, or of a cell and an algorithm."""

    replicates: int
    """The replicates of each cell."""
    noise: ReplicateNoise
    """The noise of one run that has learnt."""
    effect: float = 0.0
    """The true difference of log errors, first minus second, between learnt runs."""
    cells: int = 2
    """The number of cells in the study. All cells lend their noise to the comparison."""
    rule: VerdictRule = DIFFERENCE
    """The rule of the verdict."""
    claims: int = 1
    """The number of claims in the study. Each is judged at ALPHA / claims, the strictest step of Holm's correction."""
    paired: bool = True
    """False if the second side is an algorithm, which has no seed."""
    pairs: int = 1
    """The pairs of cells over which the claim is a mean, or the cells beside an algorithm."""
    prior: float = PRIOR
    """Weight of the study's noise, see `contrasts.half_pooled`."""
    learn: tuple[float, float] = (1.0, 1.0)
    """The chance that all compared cells learn at one seed, and the chance that they learn at two given seeds. A claim
    compares the seeds at which all learn. The other cells, which lend their noise, have as many learnt runs."""
    looks: LookSchedule | None = None
    """The looks of a study with `until: decided`; None for a study that is judged once, after `replicates`. A claim
    ends at its first verdict, or if it is futile. The other cells keep the replicates of the first look."""

    def chances(self, draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
        """The chance of each verdict. With fewer than two seeds to compare, the claim is undecided."""
        rng = np.random.default_rng(seed)
        if self.looks:
            return self._chances_at_looks(rng, self.looks, draws)
        found = _always_undecided(DIFFERENCE_VERDICTS)
        for seeds, chance in enumerate(learnt_seeds(self.replicates, *self.learn).tolist()):
            if seeds < 2 or chance < UNLIKELY:
                continue
            words = self._drawn(rng, draws, seeds).verdicts(self.rule, ALPHA / self.claims)
            for word, share in _shares(words, DIFFERENCE_VERDICTS).items():
                found[word] += chance * (share - (word == "undecided"))
        return found

    @property
    def _compared(self) -> int:
        """The number of compared cells."""
        return self.pairs * (2 if self.paired else 1)

    @property
    def _variances(self) -> tuple[float, float]:
        """The variance of one pair at one seed, and of the mean over the pairs."""
        variance_of_one = 2 * self.noise.sd**2 if self.paired else self.noise.total**2
        if self.paired:
            return variance_of_one, variance_of_one / self.pairs
        # An effect of a seed is the same in all cells.
        return variance_of_one, self.noise.sd**2 / self.pairs + self.noise.seed_sd**2

    @property
    def _others(self) -> int:
        """The contrasts of the study beside the claim's. Each pair has one, and every other cell adds one."""
        return max(self.cells, self._compared) - (1 if self.paired else 0) - 1

    def _chances_at_looks(
        self, rng: np.random.Generator, schedule: LookSchedule, draws: int
    ) -> dict[str, float]:
        """The chance of each verdict at the first look that has one. A look has the level of its planned seeds."""
        most, alpha = schedule.seeds[-1], ALPHA / self.claims
        variance_of_one, of_mean = self._variances
        gaps = self.effect + math.sqrt(of_mean) * rng.standard_normal((draws, most))
        learnt = rng.random((draws, most)) < _drawn_chances(rng, draws, *self.learn)[:, None]
        others = self._others * (schedule.seeds[0] - 1)
        rest = (
            variance_of_one / self.pairs * (rng.chisquare(others, draws) if others > 0 else np.zeros(draws))
        )
        words, ended = np.full(draws, "undecided", dtype=object), np.zeros(draws, bool)
        prior = prior_of_mean(schedule.prior, self.pairs)
        for look, seeds in enumerate(schedule.seeds):
            known = learnt[:, :seeds]
            counts = known.sum(1)
            there = np.maximum(counts, 2)
            mean = np.where(known, gaps[:, :seeds], 0.0).sum(1) / there
            square = np.where(known, (gaps[:, :seeds] - mean[:, None]) ** 2, 0.0).sum(1)
            behind = others + there - 1
            variance, freedom = half_pooled(
                square / (there - 1), (square + rest) / behind, there - 1, behind, prior
            )
            half = half_widths(np.sqrt(variance / there), freedom, float(schedule.alphas(alpha)[look]))
            judged = np.where(counts < 2, "undecided", self.rule.judge_all(mean - half, mean + half))
            now = ~ended & (judged != "undecided")
            words[now] = judged[now]
            share = there / seeds
            futile = schedule.chance(mean, variance / share, look, self.rule, alpha) < schedule.futile
            ended |= now | (futile & (counts >= 2))
        return _shares(words, DIFFERENCE_VERDICTS)

    def _drawn(self, rng: np.random.Generator, draws: int, seeds: int) -> Contrasts:
        """Contrasts over some seeds, from the distributions of mean and variances."""
        each, others = seeds - 1, self._others
        variance_of_one, of_mean = self._variances
        own = rng.chisquare(each, draws)
        rest = rng.chisquare(others * each, draws) if others > 0 else np.zeros(draws)
        behind = (others + 1) * each
        prior = prior_of_mean(self.prior, self.pairs)
        variance, freedom = half_pooled(
            of_mean * own / each, variance_of_one / self.pairs * (own + rest) / behind, each, behind, prior
        )
        error = math.sqrt(of_mean / seeds)
        difference = self.effect + error * rng.standard_normal(draws)
        return Contrasts(difference, variance, np.broadcast_to(freedom, variance.shape), seeds)


@dataclass(frozen=True)
class PlannedLaw:
    """A planned comparison of a law's rate and a predicted rate, for a form of two parameters."""

    values: tuple[float | int, ...]
    """The values on the axis."""
    replicates: int
    """The replicates at each value."""
    noise: ReplicateNoise
    """The noise of one run. All runs learn; `simulate_law` covers runs that do not learn."""
    rate: float
    """The true rate."""
    predicted: float
    """The rate of the theory."""
    form: str = "power"
    """The kind of a form, for instance `power`."""

    def chances(self, draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
        """The chance of each verdict.

        Raises
        ------
        ValueError
            For a form of three parameters, and if some runs do not learn.
        """
        form = _straight(self.form)
        if self.noise.learnt < 1:
            raise ValueError("some runs do not learn; use simulate_law")
        count = len(set(self.values))
        if count < LEAST_VALUES or self.replicates < 2:
            return _always_undecided(RATE_VERDICTS)
        rng = np.random.default_rng(seed)
        axis = form.transform(np.array(sorted(set(self.values)), dtype=np.float64))
        length = math.sqrt(float(np.sum((axis - axis.mean()) ** 2)) * self.replicates * EFFICIENCY)
        freedom = count * (self.replicates - 1)
        # An effect of a seed on all cells moves no slope. The replicates of one value show the effect as noise.
        within = rng.chisquare((count - 1) * (self.replicates - 1), draws) * self.noise.sd**2
        shared = rng.chisquare(self.replicates - 1, draws)
        within += shared * (self.noise.sd**2 + count * self.noise.seed_sd**2)
        half = half_widths(np.sqrt(within / freedom) / length, freedom)
        rates = self.rate + self.noise.sd / length * rng.standard_normal(draws)
        return _rate_shares(form, rates, half, self.predicted)


@dataclass(frozen=True)
class PlannedCurveLaw:
    """A planned comparison of a law along a curve and a predicted rate. Each run is one observation of the rate."""

    replicates: int
    """The runs of each law."""
    laws: int
    """The number of laws of the study that share their noise."""
    sd: float
    """Standard deviation of a run's rate."""
    rate: float
    """The true rate."""
    predicted: float
    """The rate of the theory."""
    form: str = "exponential"
    """The kind of a form."""

    def chances(self, draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
        """The chance of each verdict."""
        if self.replicates < 2:
            return _always_undecided(RATE_VERDICTS)
        rng = np.random.default_rng(seed)
        freedom = self.laws * (self.replicates - 1)
        error = self.sd * np.sqrt(rng.chisquare(freedom, draws) / freedom / self.replicates)
        half = half_widths(error, freedom)
        rates = self.rate + self.sd / math.sqrt(self.replicates) * rng.standard_normal(draws)
        return _rate_shares(variants(self.form)[0], rates, half, self.predicted)


@dataclass(frozen=True)
class Power:
    """The answers of a plan about one claim or law."""

    exact: Mapping[str, float]
    """The chance of each verdict if theory is exact."""
    off: Mapping[str, float]
    """The chance of each verdict if theory is off by a quarter."""
    chance_exact: float
    """The chance of "agrees" (a law) or "level" (a claim) if theory is exact."""
    chance_off: float
    """The chance of a verdict against theory (a law), or of the true difference (a claim), if theory is off by a
    quarter."""
    replicates_exact: int | None
    """The replicates for a `chance_exact` of 80 %; None above `MOST_PLANNED`."""
    replicates_off: int | None
    """The replicates for a `chance_off` of 80 %; None above `MOST_PLANNED`."""


def claim_power(plan: PlannedClaim, draws: int = DRAWS) -> Power:
    """The power of a claim: "level" if both errors are the same, "less" if the first error is a quarter less.

    If level is no verdict of the rule, `replicates_exact` is None.
    """
    same, less = replace(plan, effect=0.0), replace(plan, effect=math.log1p(-OFF))
    exact, off = same.chances(draws), less.chances(draws)
    needed = (
        replicates_needed(lambda n: replace(same, replicates=n).chances(draws)["level"])
        if plan.rule.room is not None
        else None
    )
    return Power(
        exact,
        off,
        exact["level"],
        off["less"],
        needed,
        replicates_needed(lambda n: replace(less, replicates=n).chances(draws)["less"]),
    )


def law_power(plan: PlannedLaw | PlannedCurveLaw, draws: int = DRAWS) -> Power:
    """The power of a law: "agrees" if the rate is the predicted one, "faster" or "slower" if a quarter is missing."""
    same, other = replace(plan, rate=plan.predicted), replace(plan, rate=(1 - OFF) * plan.predicted)

    def against(chances: Mapping[str, float]) -> float:
        return chances["slower"] if plan.predicted > 0 else chances["faster"]

    exact, off = same.chances(draws), other.chances(draws)
    return Power(
        exact,
        off,
        exact["agrees"],
        against(off),
        replicates_needed(lambda n: replace(same, replicates=n).chances(draws)["agrees"]),
        replicates_needed(lambda n: against(replace(other, replicates=n).chances(draws))),
    )


def simulate_law(
    values: Array,
    means: Array,
    replicates: int,
    noise: ReplicateNoise,
    judge: Callable[[Array, Array, NDArray[np.int_]], str],
    draws: int = 200,
    seed: int = 0,
) -> dict[str, float]:
    """The chance of each verdict that a judge gives, for any law and with runs that do not learn.

    With 200 draws the standard error of a chance of .8 is .03.

    Parameters
    ----------
    values
        On the axis [values].
    means
        The true log error of learnt runs at each value. Theory is off by a quarter with three quarters of the logs.
    judge
        Maps places x, errors y and the index of the run, each [runs], to a verdict.
    """
    rng = np.random.default_rng(seed)
    x = np.repeat(values, replicates)
    group = np.arange(len(x))
    words = [judge(x, np.exp(table).ravel(), group) for table in noise.draw(rng, means, replicates, draws)]
    return {word: words.count(word) / draws for word in sorted({*RATE_VERDICTS, *words})}


def learnt_seeds(seeds: int, once: float, twice: float) -> Array:
    """The chance of each number of seeds at which nets learn [seeds + 1].

    Parameters
    ----------
    seeds
        The number of trained seeds.
    once, twice
        The chance that nets learn at one seed, and at two given seeds. With `twice` above the square of `once`, the
        seeds have an unknown chance in common, and the number is beta-binomial.
    """
    if once >= 1 or once <= 0:
        return np.eye(seeds + 1)[seeds if once >= 1 else 0]
    counts = np.arange(seeds + 1)
    log = -scipy.special.betaln(counts + 1, seeds - counts + 1) - math.log(seeds + 1)
    spread = twice - once**2
    if spread < UNLIKELY * once * (1 - once):
        return np.asarray(np.exp(log + counts * math.log(once) + (seeds - counts) * math.log1p(-once)))
    total = max((once - twice) / spread, UNLIKELY)
    a, b = once * total, (1 - once) * total
    return np.asarray(
        np.exp(log + scipy.special.betaln(a + counts, b + seeds - counts) - scipy.special.betaln(a, b))
    )


def _drawn_chances(rng: np.random.Generator, draws: int, once: float, twice: float) -> Array:
    """The chance of each simulated study that its nets learn at a seed [draws], see `learnt_seeds`."""
    spread = twice - once**2
    if once >= 1 or once <= 0 or spread < UNLIKELY * once * (1 - once):
        return np.full(draws, once)
    total = max((once - twice) / spread, UNLIKELY)
    return rng.beta(once * total, (1 - once) * total, draws)


def percent(chance: float) -> str:
    """A chance or a share in words: `0 %`, `<1 %`, `37 %`, `>99 %`."""
    if 1e-9 < chance < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 < chance < 1 - 1e-9 else f"{chance:.0%}".replace("%", " %")


def replicates_needed(
    chance: Callable[[int], float], power: float = POWER, most: int = MOST_PLANNED
) -> int | None:
    """The fewest replicates with at least this power; None above `most`.

    Parameters
    ----------
    chance
        Maps replicates to the chance of the verdict, which grows with the replicates.
    """
    high = 2
    while chance(high) < power:
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= power else (middle, high)
    return high


def _straight(kind: str) -> Form:
    """The form's instance without an optional parameter, if two parameters are left."""
    form = variants(kind)[0]
    if form.size != 2:
        raise ValueError(f"the form {kind} has {form.size} parameters; use simulate_law")
    return form


def _always_undecided(words: tuple[str, ...]) -> dict[str, float]:
    return dict.fromkeys(words, 0.0) | {"undecided": 1.0}


def _rate_shares(form: Form, rates: Array, half: Array, predicted: float) -> dict[str, float]:
    """The share of each verdict on intervals of rates [draws] with these half widths [draws]."""
    verdicts = judge_rates(rates - half, rates + half, predicted, type(form).margin(predicted))
    return _shares(verdicts, RATE_VERDICTS)


def _shares(verdicts: Verdicts, words: tuple[str, ...]) -> dict[str, float]:
    return {word: float(np.count_nonzero(verdicts == word) / verdicts.size) for word in words}
