"""Simulations of the rules of `loopscale.stats`: coverage of intervals and shares of false verdicts.

The tests of this folder use the functions with few draws, and the slow tests with many. The page docs/statistics.md
holds the tables with many draws:

    python -m tests.stats.simulations [--write] [TABLE ..]

The command prints the named tables, or all tables in four minutes on one core. `--write` replaces the page's tables.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

from loopscale.stats.contrasts import (
    ALPHA,
    PRIOR,
    Array,
    Contrast,
    Contrasts,
    common_noise,
    contrast_with_value,
    contrasts,
    half_pooled,
    half_widths,
)
from loopscale.stats.emergence_prediction import predict_emergence
from loopscale.stats.fitting import EFFICIENCY
from loopscale.stats.forms.base import Form
from loopscale.stats.games import GameNoise
from loopscale.stats.learning_chances import PRIOR_COUNT, LearningLooks
from loopscale.stats.looks import LookSchedule
from loopscale.stats.multiplicity import bonferroni, holm
from loopscale.stats.power import PlannedClaim, PlannedLaw, ReplicateNoise, replicates_needed
from loopscale.stats.prediction import predict_batch, union
from loopscale.stats.survival import Distribution
from loopscale.stats.verdict_rule import DIFFERENCE, VerdictRule, Verdicts, judge_rates
from tests.stats.simulated_emergence import DISTRIBUTIONS, censored

Pairs = tuple[np.ndarray, np.ndarray]
"""The rows of the first and of the second cell of each pair."""
PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
NOISE = 0.15
LATE, LATE_EFFECT = 0.3, 0.8
SCHEDULE = LookSchedule()
EFFECTS = (0.0, 0.05, 0.1, 0.2, 0.5)
NOISES = {"equal": (1.0, 0.0), "2-fold": (2.0, 0.0), "4-fold": (4.0, 0.0), "late runs": (1.0, LATE)}
"""The ratio of the largest to the smallest standard deviation of the cells, and the chance that a run is late."""


def draw_studies(
    seed: Sequence[int],
    draws: int,
    cells: int,
    seeds: int,
    spread: float = 1.0,
    late: float = 0.0,
    common: float = NOISE,
    noise: float = NOISE,
) -> Array:
    """Log errors [draws, cells, seeds] of cells with the mean 0.

    Parameters
    ----------
    spread
        The standard deviations of the cells go geometrically from noise / sqrt(spread) to noise sqrt(spread).
    late
        The chance that a run is late, which adds .8.
    common
        Standard deviation of the effect of a seed on all cells.
    """
    rng = np.random.default_rng(seed)
    scale = noise * spread ** np.linspace(-0.5, 0.5, cells)
    logs = rng.standard_normal((draws, cells, seeds)) * scale[:, None]
    if late:
        logs += LATE_EFFECT * (rng.random(logs.shape) < late)
    return logs + common * rng.standard_normal((draws, 1, seeds))


def control_pairs(cells: int) -> Pairs:
    """The first cell and each other cell."""
    return np.zeros(cells - 1, dtype=np.int_), np.arange(1, cells)


def all_pairs(cells: int) -> Pairs:
    first, second = np.triu_indices(cells, 1)
    return first, second


def coverage(logs: Array, prior: float = PRIOR) -> Array:
    """The share of 95 % intervals that cover 0, for each pair of cells; the noisiest pair is the last."""
    found = contrasts(logs, *all_pairs(logs.shape[1]), prior=prior)
    return (np.abs(found.difference) <= found.half_width()).mean(0)


def false_verdicts(words: Verdicts, truth: Array, rule: VerdictRule = DIFFERENCE) -> np.ndarray:
    """True for each false verdict. A true difference on a border makes the verdicts of both sides false."""
    room, edge = (rule.room or 0.0) - 1e-12, rule.edge + 1e-12
    return np.select(
        [words == "less", words == "more", words == "level"],
        [truth >= -edge, truth <= edge, np.abs(truth) >= room],
        False,
    )


@dataclass(frozen=True)
class FamilyShares:
    """The shares of studies with any false verdict, and of the true differences that are found."""

    alone: float
    corrected: float
    found: float


def simulate_family(
    pairs: Pairs,
    logs: Array,
    means: Array,
    correct: Callable[[Array], Array],
    rule: VerdictRule = DIFFERENCE,
) -> FamilyShares:
    """The verdicts of a family of claims, alone and corrected.

    Parameters
    ----------
    logs
        [draws, cells, seeds], to which the true means [cells] are added.
    correct
        Adjusts p-values.
    """
    compared = contrasts(logs + means[:, None], *pairs)
    truth = means[pairs[0]] - means[pairs[1]]
    alone = compared.verdicts(rule)
    p = compared.p(rule)
    # The level at which each claim is judged: the p-value grows by this factor.
    factor = correct(p) / np.maximum(p, 1e-300)
    corrected = np.where(
        correct(p) <= ALPHA, compared.verdicts(rule, ALPHA / np.maximum(factor, 1)), "undecided"
    )
    right = (corrected != "undecided") & ~false_verdicts(corrected, truth, rule)
    return FamilyShares(
        float(false_verdicts(alone, truth, rule).any(1).mean()),
        float(false_verdicts(corrected, truth, rule).any(1).mean()),
        float(right[:, truth != 0].mean()) if (truth != 0).any() else math.nan,
    )


LOWEST_RULES = "Holm, listed pairs", "Holm, all pairs", "studentized range"


def simulate_lowest(logs: Array, means: Array) -> dict[str, FamilyShares]:
    """Every cell against the cell of lowest mean error, by correction: the studies with any false verdict.

    The corrections are Holm's over the listed pairs, Holm's over all pairs as in `compare_with_lowest`, and the
    studentized range over all pairs.
    """
    draws, cells, _ = logs.shape
    logs = logs + means[:, None]
    first, second = all_pairs(cells)
    compared = contrasts(logs, first, second)
    lowest = np.exp(logs).mean(-1).argmin(-1)[:, None]
    listed = np.nonzero((first == lowest) | (second == lowest))[1].reshape(draws, -1)

    def of_listed(values: Array) -> Array:
        return np.take_along_axis(np.broadcast_to(values, (draws, len(first))), listed, 1)

    p, difference, error = map(of_listed, (compared.p(), compared.difference, compared.error))
    truth = of_listed(means[first] - means[second])
    spread = stats.studentized_range.isf(ALPHA, cells, compared.freedom.flat[0]) / math.sqrt(2)
    decisions = (
        holm(p) <= ALPHA,
        holm(p, len(first) - cells + 1) <= ALPHA,
        np.abs(difference) > spread * error,
    )
    wrong = np.sign(difference) != np.sign(truth)
    alone = float(((p <= ALPHA) & wrong).any(1).mean())
    return {
        rule: FamilyShares(
            alone,
            float((stands & wrong).any(1).mean()),
            float((stands & ~wrong)[truth != 0].mean()) if (truth != 0).any() else math.nan,
        )
        for rule, stands in zip(LOWEST_RULES, decisions, strict=True)
    }


def contrasts_at_looks(
    logs: Array, pairs: Pairs, schedule: LookSchedule, prior: float | None = None
) -> list[Contrasts]:
    """The contrasts at every look, as `looks_at` computes the contrasts of one study."""
    prior = schedule.prior if prior is None else prior
    return [contrasts(logs[..., :seeds], *pairs, prior=prior) for seeds in schedule.seeds]


@dataclass(frozen=True)
class StoppedStudies:
    """Studies that stop at the first verdict."""

    verdict: float
    """The share that ends with a verdict."""
    covered: float
    """The share whose interval at the end covers the truth."""
    seeds: float
    """The mean number of seeds at the end."""


def stop_studies(
    looks: Sequence[Contrasts], effect: float, alphas: Array, schedule: LookSchedule, futility: bool
) -> StoppedStudies:
    """Stop every study of one pair at its first verdict, or if the claim is futile.

    Parameters
    ----------
    looks
        Of one pair [draws, 1], with the true difference 0.
    effect
        The true difference, which is added.
    alphas
        The level of each look.
    """
    draws = len(looks[0].difference)
    running, decided = np.ones(draws, bool), np.zeros(draws, bool)
    covered, seeds = np.zeros(draws, bool), np.zeros(draws)
    for look, compared in enumerate(looks):
        difference, half = compared.difference[:, 0] + effect, compared.half_width(float(alphas[look]))[:, 0]
        crossed = np.abs(difference) > half
        ends = crossed | (look == len(looks) - 1)
        if futility and look < len(looks) - 1:
            ends |= schedule.chance(difference, compared.variance[:, 0], look) < schedule.futile
        now = running & ends
        decided |= now & crossed
        covered |= now & (np.abs(difference - effect) <= half)
        seeds[now] = schedule.seeds[look]
        running &= ~ends
    return StoppedStudies(float(decided.mean()), float(covered.mean()), float(seeds.mean()))


@dataclass(frozen=True)
class StoppedLengths:
    """Studies of one pair that may train for longer, with `until.steps`."""

    any_false: float
    """The share with a verdict at any look at any length of training, if every length is trained to its last look."""
    verdict: float
    """The share that ends with a verdict, if a study ends at its first verdict."""
    covered: float
    """The share whose interval at the end covers the truth of this length."""
    trainings: float
    """The mean number of trainings of a cell, in trainings of the study's steps."""


def stop_lengths(
    seed: int, draws: int, effects: Sequence[float], schedule: LookSchedule, falling: float = 0.5
) -> StoppedLengths:
    """Stop every study at its first verdict, if it is futile, or at the last look of its last length.

    Parameters
    ----------
    effects
        The true difference after each length of training. Each length doubles the steps.
    falling
        The chance that the errors of an undecided study still fall at a look. The next length is trained then.
    """
    rng, pair = np.random.default_rng(seed), (np.array([0]), np.array([1]))
    here, going = np.ones(draws, bool), np.ones(draws, bool)
    crossing, decided, covered = np.zeros(draws, bool), np.zeros(draws, bool), np.zeros(draws, bool)
    trainings = np.zeros(draws)
    for length, effect in enumerate(effects):
        looks = contrasts_at_looks(draw_studies([seed, length], draws, 8, schedule.seeds[-1]), pair, schedule)
        left, last_length = np.zeros(draws, bool), length == len(effects) - 1
        for look, (seeds, level) in enumerate(zip(schedule.seeds, schedule.alphas().tolist(), strict=True)):
            difference, half = looks[look].difference[:, 0] + effect, looks[look].half_width(level)[:, 0]
            crossed = np.abs(difference) > half
            crossing |= crossed
            present = here & going & ~left
            longer = present & ~crossed & (rng.random(draws) < falling) & (not last_length)
            last = look == len(schedule.seeds) - 1
            hopeless = schedule.chance(difference, looks[look].variance[:, 0], look) < schedule.futile
            ends = present & ~longer & (crossed | last | hopeless)
            decided |= ends & crossed
            covered |= ends & (np.abs(difference - effect) <= half)
            trainings[ends | longer] += seeds * 2**length
            left |= longer
            going &= ~ends
        here = left
    return StoppedLengths(
        float(crossing.mean()), float(decided.mean()), float(covered.mean()), float(trainings.mean())
    )


def simulate_look_family(pairs: Pairs, logs: Array, means: Array, schedule: LookSchedule) -> FamilyShares:
    """Any false verdict at any look: each look alone at 5 %, and the p-values of all looks corrected by Holm."""
    looks = contrasts_at_looks(logs + means[:, None], pairs, schedule)
    truth = means[pairs[0]] - means[pairs[1]]
    p = np.stack([compared.p() for compared in looks], -1)
    sign = np.sign(np.stack([compared.difference for compared in looks], -1))
    strongest = (p / schedule.alphas()).argmin(-1)
    side = np.take_along_axis(sign, strongest[..., None], -1)[..., 0]
    stands = holm(schedule.p(p)) <= ALPHA
    wrong = stands & (side != np.sign(truth))
    right = stands & (side == np.sign(truth))
    alone = ((p <= ALPHA) & (sign != np.sign(truth)[:, None])).any((1, 2))
    return FamilyShares(
        float(alone.mean()),
        float(wrong.any(1).mean()),
        float(right[:, truth != 0].mean()) if (truth != 0).any() else math.nan,
    )


TRUTHS: dict[str, Callable[[Array], Array]] = {
    "power 1": lambda x: -np.log(x),
    "power .5": lambda x: -0.5 * np.log(x),
    "power 1 + floor .1": lambda x: np.log(x**-1.0 + 0.1),
    "power .7 + floor .03": lambda x: np.log(x**-0.7 + 0.03),
    "exponential .2": lambda x: -0.2 * x,
    "exponential .05": lambda x: -0.05 * x,
    "exponential .5 + floor .1": lambda x: np.log(np.exp(-0.5 * x) + 0.1),
    "exponential .1 + floor .1": lambda x: np.log(np.exp(-0.1 * x) + 0.1),
    "level": lambda x: 0.0 * x,
}
OTHER_TRUTHS: dict[str, Callable[[Array], Array]] = {
    "(ln(1 + x))^-1": lambda x: -np.log(np.log1p(x)),
    "(ln(1 + x))^-2": lambda x: -2 * np.log(np.log1p(x)),
}
"""Truths of no form that is fitted."""
FORM_NAMES = "power", "exponential", "exponential + floor", "power + floor"


@cache  # two tables share half of the simulations
def prediction_coverage(
    truth: str, values: int, replicates: int, noise: float, ahead: int, draws: int
) -> dict[str, float]:
    """The share of 95 % prediction intervals at x = 1, 2, 4 .. that cover the mean of new runs, `ahead` doublings on.

    By rule: the union of near forms, the union widened by `ahead`, the union without the exponential with a floor, the
    form with the best AICc, and each form alone.
    """
    truths = TRUTHS | OTHER_TRUTHS
    rng = np.random.default_rng([list(truths).index(truth), values, replicates, int(100 * noise), ahead])
    x = np.repeat(2.0 ** np.arange(values), replicates)
    at = np.array([2.0 ** (values - 1 + ahead)])
    curve = truths[truth]
    logs = curve(x) + noise * rng.standard_normal((draws, len(x)))
    new = curve(at)[0] + noise / math.sqrt(replicates) * rng.standard_normal(draws)
    found = predict_batch(x, logs, float(at[0]), replicates)
    ends = {name: (one.low, one.high) for name, one in zip(FORM_NAMES, found, strict=True)}
    best = np.stack([one.aicc for one in found]).argmin(0)
    stacked = np.array([(one.low, one.high) for one in found])
    ends["best AICc"] = stacked[best, 0, np.arange(draws)], stacked[best, 1, np.arange(draws)]
    ends["union"] = union(found)
    middle, half = sum(ends["union"]) / 2, (ends["union"][1] - ends["union"][0]) / 2
    ends["widened"] = middle - ahead * half, middle + ahead * half
    ends["three forms"] = union([found[0], found[1], found[3]])
    return {rule: float(np.mean((low <= new) & (new <= high))) for rule, (low, high) in ends.items()}


# Tables


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.1f}"


def intervals_table() -> str:
    rows = []
    for name, (spread, late) in NOISES.items():
        for prior in (PRIOR, 0.0):
            row = [name, f"{prior:g}"]
            for seeds in (2, 3, 5, 8):
                shares = [
                    coverage(draw_studies([1, cells, seeds], 10_000, cells, seeds, spread, late), prior)
                    for cells in (2, 3, 8, 16)
                ]
                means = [share.mean() for share in shares]
                row.append(f"{percent(min(means))} to {percent(max(means))}")
                row.append(percent(min(share[-1] for share in shares[1:])))
            rows.append(row)
    heads = [f"{seeds} seeds, {pairs}" for seeds in (2, 3, 5, 8) for pairs in ("all pairs", "noisiest")]
    return markdown(["noise", "prior", *heads], rows)


PLAYER_ERROR = 0.02
"""The relative standard error of a mean regret over 512 games."""


@dataclass(frozen=True)
class PlayedStudies:
    """Log regrets of 4 cells that play the same games, and of the reference policy. All true ratios are 1."""

    logs: Array
    """[draws, cells, seeds]."""
    reference: Array
    """[draws]."""
    alike: float
    """The share of a player's variance over games that is the same for all players."""

    @classmethod
    def draw(cls, seed: Sequence[int], draws: int, seeds: int, alike: float, noise: float) -> "PlayedStudies":
        """Half of the variance over games that is not alike is the cell's, and half is the single net's.

        Parameters
        ----------
        noise
            The noise of training.
        """
        rng = np.random.default_rng(seed)
        parts = [(draws, 1, 1), (draws, 4, 1), (draws, 4, seeds)]
        shares = alike, (1 - alike) / 2, (1 - alike) / 2
        common, *own = (
            PLAYER_ERROR * math.sqrt(share) * rng.standard_normal(shape)
            for share, shape in zip(shares, parts, strict=True)
        )
        training = noise * rng.standard_normal((draws, 4, seeds))
        reference = common[:, 0, 0] + PLAYER_ERROR * math.sqrt(1 - alike) * rng.standard_normal(draws)
        return cls(common + sum(own) + training, reference, alike)

    def coverage(self, beside_reference: bool) -> dict[str, float]:
        """The share of 95 % intervals that cover the ratio 1, by the rule for the games."""
        paired = PLAYER_ERROR * math.sqrt(2 - 2 * self.alike)
        net = GameNoise(PLAYER_ERROR, paired, 1.0)
        other = GameNoise(PLAYER_ERROR, 0.0 if beside_reference else paired, 1.0)
        apart = replace(other, reference=2.0)  # as if the players had played different games
        rules = {"none": 0.0, "unpaired": net.beside(apart), "paired": net.beside(other)}
        found = self._beside_reference() if beside_reference else self._two_cells()
        return {
            name: float(np.mean([low <= 0 <= high for low, high in _intervals(found, shared)]))
            for name, shared in rules.items()
        }

    def _two_cells(self) -> list[Contrast]:
        found, seeds = contrasts(self.logs, np.array([0]), np.array([1])), self.logs.shape[-1]
        rows = zip(found.difference[:, 0], found.variance[:, 0], found.freedom[:, 0], strict=True)
        return [Contrast(float(mean), float(var), float(freedom), seeds) for mean, var, freedom in rows]

    def _beside_reference(self) -> list[Contrast]:
        rows = zip(self.logs, np.exp(self.reference), strict=True)
        found = [contrast_with_value(logs, 0, float(value)) for logs, value in rows]
        return [each for each in found if each]


def _intervals(found: Sequence[Contrast], shared: float) -> Iterator[tuple[float, float]]:
    return (each.beside(shared).interval() for each in found)


def games_table() -> str:
    rows = []
    for second, beside_reference in (("a cell", False), ("the reference", True)):
        for alike in (0.8, 0.5, 0.2):
            for noise in (0.01, 0.05):
                row = [second, f"{100 * alike:.0f}", f"{noise:g}"]
                for seeds in (3, 8, 27):
                    played = PlayedStudies.draw([21, seeds], 4000, seeds, alike, noise)
                    row.append(" ".join(map(percent, played.coverage(beside_reference).values())))
                rows.append(row)
    heads = [f"{seeds} seeds" for seeds in (3, 8, 27)]
    return markdown(["second side", "alike, %", "noise of training", *heads], rows)


def families_table() -> str:
    rows = []
    for family, pairs in (("7 against a control", control_pairs(8)), ("all 28 pairs", all_pairs(8))):
        for seeds in (3, 5):
            for name, (spread, late) in NOISES.items():
                logs = draw_studies([2, seeds], 10_000, 8, seeds, spread, late)
                level, half = (
                    simulate_family(pairs, logs, means, holm)
                    for means in (np.zeros(8), np.repeat([0, 0.4], 4))
                )
                shares = level.alone, level.corrected, half.alone, half.corrected, half.found
                rows.append([family, str(seeds), name, *map(percent, shares)])
    heads = ["all level: alone", "Holm", "half differ: alone", "Holm", "found by Holm"]
    return markdown(["family", "seeds", "noise", *heads], rows)


def lowest_table() -> str:
    rows = []
    for name, (spread, late) in NOISES.items():
        for cells in (2, 3, 4, 8, 16):
            shares = [
                simulate_lowest(
                    draw_studies([7, cells, seeds], 10_000, cells, seeds, spread, late), np.zeros(cells)
                )
                for seeds in (3, 5, 8)
            ]
            by_rule = [[share[rule].corrected for share in shares] for rule in LOWEST_RULES]
            alone = [share[LOWEST_RULES[0]].alone for share in shares]
            rows.append(
                [name, str(cells), *(" ".join(map(percent, of_rule)) for of_rule in (alone, *by_rule))]
            )
    return markdown(["noise", "cells", "alone", *LOWEST_RULES], rows)


def lowest_power_table() -> str:
    """Half the cells level, and half above by .4."""
    rows = []
    for name in ("equal", "4-fold", "late runs"):
        for cells in (4, 8, 16):
            means = np.repeat([0.0, 0.4], cells // 2)
            shares = [
                simulate_lowest(draw_studies([8, cells, seeds], 10_000, cells, seeds, *NOISES[name]), means)
                for seeds in (3, 5, 8)
            ]
            for part in ("corrected", "found"):
                of_rules = [[getattr(share[rule], part) for share in shares] for rule in LOWEST_RULES]
                head = "any false" if part == "corrected" else part
                rows.append([name, str(cells), head, *(" ".join(map(percent, row)) for row in of_rules)])
    return markdown(["noise", "cells", "share", *LOWEST_RULES], rows)


def claims_table() -> str:
    rows = []
    for seeds in (3, 5, 8):
        for effect in (0.2, 0.3, 0.5):
            plan = PlannedClaim(seeds, ReplicateNoise(NOISE), -effect, 8)
            chances = [replace(plan, claims=claims).chances()["less"] for claims in (1, 3, 7, 28)]
            rows.append([str(seeds), f"{effect:g}", *map(percent, chances)])
    return markdown(["seeds", "effect", "1 claim", "3 claims", "7 claims", "28 claims"], rows)


def margins_table() -> str:
    rows, rule = [], VerdictRule.difference(0.1)
    for family, pairs in (("7 against a control", control_pairs(8)), ("all 28 pairs", all_pairs(8))):
        for seeds in (5, 8, 12, 20):
            logs = draw_studies([3, seeds], 10_000, 8, seeds, noise=0.05)
            both = [
                simulate_family(pairs, logs, np.repeat([0.0, rule.room], 4), correct, rule)
                for correct in (holm, bonferroni)
            ]
            rows.append(
                [family, str(seeds), percent(both[0].alone), *(percent(one.corrected) for one in both)]
            )
    return markdown(["family", "seeds", "alone", "Holm", "Bonferroni"], rows)


def equality_table() -> str:
    """Claims of equality, cells against a control, corrected for the number of claims."""
    rows, rule = [], VerdictRule.equality(0.1)
    for seeds in (5, 8, 12, 20):
        logs, row = draw_studies([8, seeds], 10_000, 8, seeds, noise=0.05), [str(seeds)]
        for ratio in (1.0, 1.1, 1.2, 1.3):
            means = np.array([0.0, *[math.log(ratio)] * 7])
            compared = contrasts(logs + means[:, None], *control_pairs(8))
            words = compared.verdicts(rule, ALPHA / 7)
            wrong = false_verdicts(words, means[0] - means[1:], rule).any(1).mean()
            row.append(percent(wrong if ratio == 1.1 else (words != "undecided").mean()))
        rows.append(row)
    heads = [f"{word}, ratio {ratio}" for word, ratio in (("holds", 1), ("any false verdict", 1.1))]
    return markdown(["seeds", *heads, *(f"does not hold, ratio {ratio}" for ratio in (1.2, 1.3))], rows)


def level_table() -> str:
    rows = []
    for noise in (0.05, 0.1, 0.2):
        row = [f"{noise:g}"]
        for margin in (0.05, 0.1):
            plan = PlannedClaim(2, ReplicateNoise(noise), cells=8, rule=VerdictRule.difference(margin))
            for power in (0.8, 0.9):
                row.append(str(needed(plan, "level", power)))
        rows.append(row)
    return markdown(["noise", "margin 5 %, power 80 %", "90 %", "margin 10 %, power 80 %", "90 %"], rows)


def needed(plan: PlannedClaim | PlannedLaw, word: str, power: float = 0.8) -> int | None:

    return replicates_needed(lambda count: replace(plan, replicates=count).chances()[word], power)


def looks_table() -> str:
    pair = np.array([0]), np.array([1])
    looks = contrasts_at_looks(draw_studies([4], 40_000, 8, SCHEDULE.seeds[-1]), pair, SCHEDULE)
    rows = []
    schemes = {
        "95 % at each look": (np.full(len(SCHEDULE.seeds), ALPHA), False),
        "spending": (SCHEDULE.alphas(), False),
        "spending, futility": (SCHEDULE.alphas(), True),
    }
    for name, (alphas, futility) in schemes.items():
        stopped = [stop_studies(looks, effect, alphas, SCHEDULE, futility) for effect in EFFECTS]
        rows.append(
            [name, percent(stopped[0].verdict), percent(min(one.covered for one in stopped))]
            + [percent(one.verdict) for one in stopped[1:]]
            + [f"{one.seeds:.1f}" for one in stopped]
        )
    heads = [f"power {effect:g}" for effect in EFFECTS[1:]] + [f"seeds {effect:g}" for effect in EFFECTS]
    return markdown(["rule", "false", "covered at the end", *heads], rows)


def lengths_table() -> str:
    """Claims of studies with `until.steps`: false verdicts, and the cost of a true effect of .2."""
    rows = []
    for count in (1, 2, 3, 4):
        split = replace(SCHEDULE, parts=count)
        unsplit, level = (stop_lengths(15, 20_000, [0.0] * count, each) for each in (SCHEDULE, split))
        effect = stop_lengths(15, 20_000, [0.2] * count, split)
        late = stop_lengths(15, 20_000, [0.0] * (count - 1) + [0.2], split)
        shares = [unsplit.any_false, level.any_false, level.verdict, level.covered, effect.verdict]
        shares.append(min(effect.covered, late.covered))
        trainings = [f"{each.trainings:.1f}" for each in (level, effect)]
        rows.append([str(2 ** (count - 1)), *map(percent, shares), *trainings])
    header = ["steps", "any false, 5 % each", "any false, split", "false at the end", "covered, no effect"]
    return markdown([*header, "power 0.2", "covered, effects", "trainings 0", "trainings 0.2"], rows)


@dataclass(frozen=True)
class JudgedLearning:
    """Claims whose nets do not always learn. All numbers but the replicates are shares."""

    false_ratio: float
    """With a verdict on the ratio at any look. This is false without an effect."""
    false_learning: float
    """With a verdict on the chances to learn at any look. This is false for equal chances."""
    ratio: float
    """That end with a verdict on the ratio."""
    learning: float
    """That end with a verdict on the chances to learn alone."""
    covered: float
    """Whose last interval covers the truth, of those with an interval."""
    replicates: float
    """The mean number of replicates at the end."""
    all_learnt: float
    """That end with a verdict if a run that has not learnt blocks the claim."""


@dataclass(frozen=True)
class LearningCourses:
    """Claims on two of four cells at all looks, [draws, looks], as `looks_at` and `looks_at_learning` judge one."""

    ratio: np.ndarray
    """True from the first verdict on the ratio on."""
    learning: np.ndarray
    """True from the first verdict on the chances to learn on."""
    futile_ratio: np.ndarray
    futile_learning: np.ndarray
    covered: Array
    """1 if the interval of the look covers the truth, else 0; NaN without an interval."""
    all_learnt: np.ndarray
    """True if all compared runs so far have learnt."""


def learning_courses(logs: Array, learnt: np.ndarray, effect: float) -> LearningCourses:
    """Judge claims on the first two cells at every look.

    Parameters
    ----------
    logs, learnt
        Log errors, and whether runs have learnt, each [draws, 4, seeds].
    effect
        The true difference of the first two cells.
    """
    both = learnt[:, 0] & learnt[:, 1]
    counts = np.stack([both[:, :seeds].sum(-1) for seeds in SCHEDULE.seeds], axis=1)
    compared = [_masked_contrasts(logs[..., :seeds], learnt[..., :seeds]) for seeds in SCHEDULE.seeds]
    shape = counts.shape
    ratio, futile_ratio, covered = np.zeros(shape, bool), np.zeros(shape, bool), np.full(shape, np.nan)
    learning, futile_learning = np.zeros(shape, bool), np.zeros(shape, bool)
    for pattern in np.unique(counts, axis=0):
        rows = (counts == pattern).all(axis=1)
        verdict = np.zeros(rows.sum(), bool)
        for look, seeds in enumerate(SCHEDULE.seeds):
            share = (pattern[look] + PRIOR_COUNT) / (seeds + 2 * PRIOR_COUNT)
            futile_ratio[rows, look] = not (pattern[look] and share * SCHEDULE.seeds[-1] >= SCHEDULE.seeds[0])
            schedule = SCHEDULE.with_counts(pattern[: look + 1].tolist())
            informative = [k for k in range(look + 1) if pattern[k] > max([1, *pattern[:k]])]
            if not informative:
                continue
            one, place = compared[informative[-1]], len(informative) - 1
            half = one.half_width(float(schedule.alphas()[place]))[rows]
            verdict = verdict | (np.abs(one.difference[rows]) > half)
            ratio[rows, look] = verdict
            covered[rows, look] = np.abs(one.difference[rows] - effect) <= half
            variance = one.error[rows] ** 2 * pattern[informative[-1]]
            chance = schedule.chance(one.difference[rows], variance, place)
            futile_ratio[rows, look] = ~verdict & (chance < schedule.futile)
    numbers = np.stack([learnt[:, :2, :seeds].sum(-1) for seeds in SCHEDULE.seeds], axis=-1)
    for pattern in np.unique(numbers.reshape(len(numbers), -1), axis=0):
        rows = (numbers.reshape(len(numbers), -1) == pattern).all(axis=1)
        for look, seeds in enumerate(SCHEDULE.seeds):
            first, second = (tuple(each[: look + 1].tolist()) for each in np.split(pattern, 2))
            looks = LearningLooks(SCHEDULE, first, second, SCHEDULE.seeds[: look + 1])
            all_learn = first[-1] == second[-1] == seeds
            learning[rows, look] = not all_learn and looks.judge() != "undecided"
            futile_learning[rows, look] = all_learn or looks.is_futile()
    whole = np.stack([both[:, :seeds].all(-1) for seeds in SCHEDULE.seeds], axis=1)
    return LearningCourses(ratio, learning, futile_ratio, futile_learning, covered, whole)


def _masked_contrasts(logs: Array, learnt: np.ndarray) -> Contrasts:
    """The contrasts [draws] of the first two cells over the seeds at which both have learnt.

    The numbers of these seeds differ, so the variances are scaled to one number.
    """
    table = np.where(learnt, logs, np.nan)
    known = learnt[:, 0] & learnt[:, 1]
    count = np.maximum(known.sum(-1), 2)
    gaps = np.where(known, table[:, 0] - table[:, 1], 0.0)
    mean = gaps.sum(-1) / count
    own = np.where(known, (gaps - mean[:, None]) ** 2, 0.0).sum(-1) / (count - 1)
    common, behind = common_noise(table)
    variance, freedom = half_pooled(own, 2 * common, count - 1, behind, SCHEDULE.prior)
    return Contrasts(mean, variance * SCHEDULE.seeds[-1] / count, freedom, SCHEDULE.seeds[-1])


def judge_learning_claims(
    chances: tuple[float, float], effect: float, draws: int, seed: int = 20
) -> JudgedLearning:
    """Claims on two of four cells, as `until: decided` judges and stops them. The noise of a run is .3.

    Parameters
    ----------
    chances
        The chance to learn of the first and of the second cell. The other cells learn with a chance of .9.
    effect
        The true difference of log errors among learnt runs.
    """
    rng = np.random.default_rng(seed)
    shape = draws, 4, SCHEDULE.seeds[-1]
    logs = 0.3 * rng.standard_normal(shape) + np.array([effect, 0, 0, 0])[:, None]
    learnt = rng.random(shape) < np.array([*chances, 0.9, 0.9])[:, None]
    courses = learning_courses(logs, learnt, effect)
    ends = courses.ratio | (courses.futile_ratio & (courses.learning | courses.futile_learning))
    ends[:, -1] = True
    end = ends.argmax(axis=1)
    at_end = np.arange(draws), end
    ratio, learning = courses.ratio[at_end], courses.learning[at_end]
    return JudgedLearning(
        courses.ratio[:, -1].mean(),
        courses.learning.any(axis=1).mean(),
        ratio.mean(),
        (learning & ~ratio).mean(),
        float(np.nanmean(courses.covered[at_end])),
        np.array(SCHEDULE.seeds)[end].mean(),
        (courses.ratio & courses.all_learnt).any(axis=1).mean(),
    )


def learning_looks_table() -> str:
    """Claims whose nets do not always learn: false verdicts, coverage, and the cost of a ratio of .6."""
    rows = []
    for chances in ((1.0, 1.0), (0.9, 0.9), (0.6, 0.6), (0.3, 0.3), (0.95, 0.6), (0.9, 0.2)):
        level, less = (judge_learning_claims(chances, effect, 1_000) for effect in (0.0, math.log(0.6)))
        equal = chances[0] == chances[1]
        rows.append(
            [
                f"{chances[0]:g}, {chances[1]:g}",
                percent(level.false_ratio),
                percent(level.false_learning) if equal else "–",
                percent(min(level.covered, less.covered)),
                percent(less.ratio),
                percent(less.learning),
                f"{level.replicates:.1f}",
                f"{less.replicates:.1f}",
                percent(less.all_learnt),
            ]
        )
    header = [
        "chances to learn",
        "false ratio",
        "false learning",
        "covered",
        "ratio decided",
        "learning decided",
    ]
    return markdown([*header, "seeds, ratio 1", "seeds, ratio 0.6", "decided if one run blocks"], rows)


def look_families_table() -> str:
    rows = []
    one = np.array([2]), np.array([3])
    for family, pairs in (
        ("one pair", one),
        ("7 against a control", control_pairs(8)),
        ("all 28 pairs", all_pairs(8)),
    ):
        for name in ("equal", "4-fold", "late runs"):
            logs = draw_studies([5], 4_000, 8, SCHEDULE.seeds[-1], *NOISES[name])
            level, half = (
                simulate_look_family(pairs, logs, means, SCHEDULE)
                for means in (np.zeros(8), np.repeat([0, 0.3], 4))
            )
            rows.append(
                [family, name, percent(level.alone), percent(level.corrected), percent(half.corrected)]
            )
    return markdown(
        ["family", "noise", "alone, all level", "corrected, all level", "corrected, half differ"], rows
    )


def noisy_looks_table() -> str:
    rows = []
    for cells in (2, 3, 8):
        pair = np.array([cells - 2]), np.array([cells - 1])
        for name, (spread, late) in NOISES.items():
            row = [str(cells), name]
            for prior in (0.0, 2.0, 6.0):
                logs = draw_studies([6, cells], 8_000, cells, SCHEDULE.seeds[-1], spread, late)
                looks = contrasts_at_looks(logs, pair, SCHEDULE, prior)
                row.append(percent(stop_studies(looks, 0.0, SCHEDULE.alphas(), SCHEDULE, False).verdict))
            rows.append(row)
    return markdown(["cells", "noise", "prior 0", "prior 2", "prior 6"], rows)


@dataclass(frozen=True)
class StoppedLaws:
    """Studies of one law that stop at the first verdict, if the law is futile, or at the last look.

    Attributes
    ----------
    words
        The verdict of each study.
    futile
        True if the study stopped because the law was futile.
    seeds
        The replicates at the stop.
    covered
        True if the interval at the stop holds the true rate.
    """

    words: Verdicts
    futile: np.ndarray
    seeds: Array
    covered: np.ndarray


@dataclass(frozen=True)
class LawLook:
    """One look at many laws of two parameters against the predicted rate 1, by least squares, as in `LawLooks`.

    Attributes
    ----------
    off
        The rates minus 1.
    error
        Their standard errors.
    words
        The verdicts of this look.
    hopeless
        True if a law is futile.
    covered
        True if the interval holds the true rate.
    """

    seeds: int
    off: Array
    error: Array
    words: Verdicts
    hopeless: np.ndarray
    covered: np.ndarray


def looks_at_laws(
    runs: Array, values: Array, rate: float, schedule: LookSchedule, laws: int = 1
) -> Iterator[LawLook]:
    """The looks at laws with noise `runs` [laws, values, seeds]. A family of `laws` corrects the verdicts."""
    axis = np.log(values) - np.log(values).mean()
    length, count = float(axis @ axis) * EFFICIENCY, len(values)
    margin, most = Form.choices()["power"].margin(1.0), schedule.seeds[-1]
    levels = schedule.alphas(ALPHA / laws)
    for now, level in zip(schedule.seeds, levels.tolist(), strict=True):
        part = runs[:, :, :now]
        variance = part.var(-1, ddof=1).mean(-1)
        off = rate - 1 - part.mean(-1) @ axis / float(axis @ axis)
        error = np.sqrt(variance / (now * length))
        half = half_widths(error, count * (now - 1), level)
        found = judge_rates(1 + off - half, 1 + off + half, 1.0, margin)
        last = half_widths(error * math.sqrt(now / most), count * (most - 1), levels[-1])
        spread = np.maximum(error * math.sqrt(1 - now / most), 1e-150)
        hopeless = (found == "undecided") & (VerdictRule(margin).chance(off, spread, last) < schedule.futile)
        alone = half_widths(error, count * (now - 1), schedule.alphas()[schedule.seeds.index(now)])
        covered = np.abs(1 + off - rate) <= alone
        yield LawLook(now, off, error, found, hopeless & (now < most), covered)


def stop_laws(
    seed: int, draws: int, values: Array, noise: float, rate: float, schedule: LookSchedule, laws: int = 1
) -> StoppedLaws:
    """Laws that stop at the first verdict, if the law is futile, or at the last look."""
    most = schedule.seeds[-1]
    runs = noise * np.random.default_rng(seed).standard_normal((draws, len(values), most))
    words, seeds = np.full(draws, "undecided", dtype=object), np.full(draws, float(most))
    futile, covered, going = np.zeros(draws, bool), np.zeros(draws, bool), np.ones(draws, bool)
    for look in looks_at_laws(runs, values, rate, schedule, laws):
        ends = going & ((look.words != "undecided") | look.hopeless | (look.seeds == most))
        words[ends], seeds[ends] = look.words[ends], look.seeds
        futile[ends], covered[ends] = look.hopeless[ends], look.covered[ends]
        going &= ~ends
    return StoppedLaws(words, futile, seeds, covered)


@dataclass(frozen=True)
class StoppedReserves:
    """Studies of one law with values in reserve, which stop like `StoppedLaws`.

    Attributes
    ----------
    words
        The last verdict of each study.
    covered
        True if the last interval holds the true rate.
    ordered
        True if the study trained the values in reserve.
    any_false
        True if a look at one of the two questions is false, when all cells are trained to the last look.
    cost
        The costs of the trained runs. A run at x costs x.
    """

    words: Verdicts
    covered: np.ndarray
    ordered: np.ndarray
    any_false: np.ndarray
    cost: Array


def stop_reserves(
    seed: int, draws: int, noise: float, rate: float, schedule: LookSchedule, first: int = 4
) -> StoppedReserves:
    """Laws along `RESERVED_VALUES`, of which all values after the `first` ones are in reserve.

    The rule is that of `LawQuestions`: the values are ordered if they decide the law for a lower cost than replicates.
    """
    most, count = schedule.seeds[-1], len(RESERVED_VALUES)
    margin, last = Form.choices()["power"].margin(1.0), float(schedule.alphas()[-1])
    costs = [float(RESERVED_VALUES[:first].sum()), float(RESERVED_VALUES[first:].sum())]
    shrink = math.sqrt(_length(RESERVED_VALUES[:first]) / _length(RESERVED_VALUES))
    runs = noise * np.random.default_rng(seed).standard_normal((draws, count, most))
    words, replicates = np.full(draws, "undecided", dtype=object), np.zeros((2, draws))
    covered, ordered, any_false = (np.zeros(draws, bool) for _ in range(3))
    going = np.ones(draws, bool)
    for question, values in enumerate((RESERVED_VALUES[:first], RESERVED_VALUES)):
        for look in looks_at_laws(runs[:, : len(values)], values, rate, schedule):
            now, orders = look.seeds, np.zeros(draws, bool)
            any_false |= np.isin(look.words, ["faster", "slower"] if rate == 1 else ["agrees", "faster"])
            if question == 0:
                reach = np.maximum(np.abs(look.off), margin - np.abs(look.off))
                half = half_widths(look.error, first * (now - 1), last)
                alone = np.maximum(now + 1, np.ceil(now * (half / reach) ** 2))
                half = half_widths(look.error * shrink, count * (now - 1), last)
                more = np.maximum(schedule.seeds[0], np.ceil(now * (half / reach) ** 2))
                by_runs = np.where(alone <= most, costs[0] * (alone - now), np.inf)
                by_values = costs[0] * np.maximum(more - now, 0) + costs[1] * more
                orders = going & (look.words == "undecided") & (more <= most) & (by_values < by_runs)
            ends = going & ~orders & ((look.words != "undecided") | look.hopeless | (now == most))
            words[ends], covered[ends] = look.words[ends], look.covered[ends]
            replicates[question, ends | orders] = now
            ordered |= orders
            going &= ~(ends | orders)
        going = ordered.copy()
    cost = costs[0] * replicates.max(0) + costs[1] * replicates[1]
    return StoppedReserves(words, covered, ordered, any_false, cost)


def _length(values: Array) -> float:
    return float(np.sum((np.log(values) - np.log(values).mean()) ** 2))


RESERVED_VALUES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
LAW_RATES = (1.0, 0.95, 0.9, 0.75, 0.5)
LAW_VALUES = np.array([1.0, 2.0, 4.0, 8.0])


def law_looks_table() -> str:
    """Laws at looks, with four values over a factor of 8 and a predicted rate of 1."""
    rows: list[list[str]] = []
    for noise in (0.1, 0.2, 0.4, 0.8):
        for rate in LAW_RATES:
            stopped = stop_laws(11, 20_000, LAW_VALUES, noise, rate, SCHEDULE)
            shares = [float(np.mean(stopped.words == word)) for word in ("agrees", "slower", "faster")]
            row = [*shares, float(stopped.futile.mean()), float(stopped.covered.mean())]
            rows.append([f"{noise:g}", f"{rate:g}", *map(percent, row), f"{stopped.seeds.mean():.1f}"])
    header = [
        "noise",
        "true rate",
        "agrees",
        "slower",
        "faster",
        "futile",
        "covered at the end",
        "replicates",
    ]
    return markdown(header, rows)


def reserves_table() -> str:
    """One law with four values over a factor of 8, and two values in reserve."""
    rows: list[list[str]] = []
    for noise in (0.1, 0.2, 0.4, 0.8):
        for rate in (1.0, 0.75):
            each, split = (
                stop_reserves(13, 20_000, noise, rate, replace(SCHEDULE, parts=parts)) for parts in (1, 2)
            )
            none = stop_laws(13, 20_000, LAW_VALUES, noise, rate, SCHEDULE)
            right = "agrees" if rate == 1 else "slower"
            shares = [each.any_false, split.any_false, split.covered, split.ordered]
            shares += [none.words == right, split.words == right]
            costs = [float(LAW_VALUES.sum()) * none.seeds.mean(), split.cost.mean()]
            row = [*(percent(float(np.mean(share))) for share in shares), *(f"{cost:.0f}" for cost in costs)]
            rows.append([f"{noise:g}", f"{rate:g}", *row])
    header = ["noise", "true rate", "any false, 5 % each", "any false, split", "covered at the end"]
    header += ["reserve ordered", "right without reserve", "right with reserve", "cost without", "cost with"]
    return markdown(header, rows)


def laws_table() -> str:
    rows = []
    laws = [("power", rate, span) for rate in (1.0, 0.5) for span in (8, 16)] + [("exponential", 0.25, 8)]
    for form, rate, span in laws:
        row = [form, f"{rate:g}", str(span)]
        for noise in (0.05, 0.1, 0.2):
            plans = [
                PlannedLaw(tuple(np.geomspace(1, span, count)), 2, ReplicateNoise(noise), rate, rate, form)
                for count in (4, 5, 6, 8)
            ]
            seeds = [needed(plan, "agrees") for plan in plans]
            row.append(" ".join(map(str, seeds)))
        rows.append(row)
    return markdown(["form", "rate", "factor", "noise .05", "noise .1", "noise .2"], rows)


def predictions_table() -> str:
    rows = []
    for ahead in (1, 2):
        for noise in (0.05, 0.15):
            for values in (4, 5, 6):
                shares = [
                    prediction_coverage(truth, values, replicates, noise, ahead, 200)
                    for truth in TRUTHS
                    for replicates in (3, 5)
                ]
                row = ["next" if ahead == 1 else "after next", f"{noise:g}", str(values)]
                for rule in ("union", "three forms", "best AICc"):
                    found = sorted(share[rule] for share in shares)
                    row.append(
                        f"{100 * found[0]:.0f} {100 * found[1]:.0f} {100 * found[len(found) // 4]:.0f}"
                    )
                rows.append(row)
    heads = ["union", "without exponential + floor", "best AICc alone"]
    return markdown(["value", "noise", "fitted values", *heads], rows)


def far_predictions_table() -> str:
    rows = []
    for values in (4, 5, 6):
        for ahead in (1, 2, 3):
            cells = [str(values), str(ahead)]
            for truths in (TRUTHS, *([truth] for truth in OTHER_TRUTHS)):
                shares = [
                    prediction_coverage(truth, values, replicates, 0.05, ahead, 200)
                    for truth in truths
                    for replicates in (3, 5)
                ]
                cells += [
                    f"{100 * min(share[rule] for share in shares):.0f}" for rule in ("union", "widened")
                ]
            rows.append(cells)
    heads = [f"{truth}: {rule}" for truth in ("listed", *OTHER_TRUTHS) for rule in ("union", "widened")]
    return markdown(["fitted values", "steps ahead", *heads], rows)


def emergence_coverage(
    form: str,
    values: int,
    replicates: int,
    last: float,
    ahead: int = 1,
    draws: int = 300,
    distribution: Distribution = "lognormal",
) -> tuple[float, float]:
    """The share of 95 % prediction intervals that cover the mean log step of emergence, and the share of censored runs.

    The axis is x = 1, 2, 4 .., the reports are 100 steps apart, and runs end at step `last`.
    """
    rng = np.random.default_rng([values, replicates, ahead, len(form), len(distribution)])
    x = np.repeat(2.0 ** np.arange(values), replicates)
    at = 2.0 ** (values - 1 + ahead)

    def steps(place: Array) -> Array:
        fall = 0.4 * np.log2(place) if form == "power" else place / 20
        shape = (draws, len(place))
        normal, extreme = rng.standard_normal(shape), np.log(rng.standard_exponential(shape))
        return math.log(2000) - fall + 0.5 * (normal if distribution == "lognormal" else extreme)

    after, by = censored(np.exp(steps(x)), 100, last)
    new = steps(np.full(replicates, at)).mean(1)
    found = [predict_emergence(x, a, b, at, replicates) for a, b in zip(after, by, strict=True)]
    covered = [one.low <= mean <= one.high for one, mean in zip(found, new, strict=True) if one]
    return float(np.mean(covered)), float(np.isinf(by).mean())


def emergence_predictions_table() -> str:
    rows = []
    for form in ("power", "exponential"):
        for distribution in DISTRIBUTIONS:
            for values in (4, 6):
                row = [form, distribution, str(values)]
                for last in (math.inf, 2000.0):
                    shares = [
                        emergence_coverage(form, values, replicates, last, 1, 300, distribution)
                        for replicates in (2, 3, 5)
                    ]
                    row.append(" ".join(f"{100 * covered:.0f}" for covered, _ in shares))
                row.append(f"{100 * shares[-1][1]:.0f}")
                rows.append(row)
    return markdown(["truth", "noise", "fitted values", "none censored", "censored", "share censored"], rows)


def wrong_forms_table() -> str:
    rows = []
    for truth in (*TRUTHS, *OTHER_TRUTHS):
        shares, later = (
            [prediction_coverage(truth, values, 3, 0.05, ahead, 500) for values in (4, 6)] for ahead in (1, 2)
        )
        rules = (*FORM_NAMES, "union")
        row = [" ".join(f"{100 * share[rule]:.0f}" for share in shares) for rule in rules]
        rows.append([truth, *row, " ".join(f"{100 * share['union']:.0f}" for share in later)])
    return markdown(["truth", *FORM_NAMES, "union", "union, after next"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "intervals": intervals_table,
    "games": games_table,
    "families": families_table,
    "lowest": lowest_table,
    "lowest-power": lowest_power_table,
    "claims": claims_table,
    "margins": margins_table,
    "equality": equality_table,
    "level": level_table,
    "looks": looks_table,
    "lengths": lengths_table,
    "learning-looks": learning_looks_table,
    "look-families": look_families_table,
    "noisy-looks": noisy_looks_table,
    "law-looks": law_looks_table,
    "reserves": reserves_table,
    "laws": laws_table,
    "predictions": predictions_table,
    "far-predictions": far_predictions_table,
    "emergence-predictions": emergence_predictions_table,
    "wrong-forms": wrong_forms_table,
}


def table_on_page(text: str, name: str) -> re.Match[str]:
    """The table of this name: the text between its two comments."""
    found = re.search(rf"(?<=<!-- table: {name} -->\n\n).*?(?=\n\n<!-- end -->)", text, re.DOTALL)
    assert found is not None, f"{PAGE} has no table {name}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints the tables of docs/statistics.md.")
    parser.add_argument("tables", nargs="*", metavar="table", help=", ".join(TABLES))
    parser.add_argument("--write", action="store_true", help="replaces the tables of the page")
    asked = parser.parse_args()
    for name in asked.tables or TABLES:
        table = TABLES[name]()
        print(f"{name}\n\n{table}\n", flush=True)
        if asked.write:
            text = PAGE.read_text()
            start, end = table_on_page(text, name).span()
            PAGE.write_text(text[:start] + table + text[end:])


if __name__ == "__main__":
    main()
