"""Simulations of the rules of `loopscale.stats`: coverage of intervals and shares of false verdicts.

The tests of this folder use the functions with few draws, or with many if they are marked slow. The page
docs/statistics.md holds the tables with many draws:

    python -m tests.stats.simulations            # prints all tables, in six minutes on one core
    python -m tests.stats.simulations --write    # replaces the tables of the page
    python -m tests.stats.simulations looks      # prints one table
"""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from loopscale.stats.contrasts import ALPHA, PRIOR, Array, Contrasts, Words, contrasts
from loopscale.stats.looks import LookSchedule
from loopscale.stats.multiplicity import bonferroni, holm
from loopscale.stats.power import PlannedClaim, PlannedLaw, ReplicateNoise, replicates_needed
from loopscale.stats.prediction import predict_batch, union

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


def false_verdicts(words: Words, truth: Array, margin: float | None = None) -> np.ndarray:
    """True for each false verdict. "level" is false from a difference of the margin on."""
    room = math.log1p(margin) - 1e-12 if margin else 0.0
    return np.select(
        [words == "less", words == "more", words == "level"],
        [truth >= 0, truth <= 0, np.abs(truth) >= room],
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
    margin: float | None = None,
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
    alone = compared.verdicts(margin)
    p = compared.p(margin)
    # The level at which each claim is judged: the p-value grows by this factor.
    factor = correct(p) / np.maximum(p, 1e-300)
    corrected = np.where(
        correct(p) <= ALPHA, compared.verdicts(margin, ALPHA / np.maximum(factor, 1)), "undecided"
    )
    right = (corrected != "undecided") & ~false_verdicts(corrected, truth, margin)
    return FamilyShares(
        float(false_verdicts(alone, truth, margin).any(1).mean()),
        float(false_verdicts(corrected, truth, margin).any(1).mean()),
        float(right[:, truth != 0].mean()) if (truth != 0).any() else math.nan,
    )


def contrasts_at_looks(
    logs: Array, pairs: Pairs, schedule: LookSchedule, prior: float | None = None
) -> list[Contrasts]:
    """The contrasts at every look, as `looks_at` computes the contrasts of one study."""
    prior = schedule.prior if prior is None else prior
    return [contrasts(logs[..., :seeds], *pairs, prior=prior) for seeds in schedule.seeds]


@dataclass(frozen=True)
class StoppedStudies:
    """Studies that stop at the first verdict.

    Attributes
    ----------
    verdict
        The share that ends with a verdict.
    covered
        The share whose interval at the end covers the truth.
    seeds
        The mean number of seeds at the end.
    """

    verdict: float
    covered: float
    seeds: float


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


def prediction_coverage(
    truth: str, values: int, replicates: int, noise: float, ahead: int, draws: int
) -> dict[str, float]:
    """The share of 95 % prediction intervals at x = 1, 2, 4 .. that cover the mean of new runs, `ahead` doublings on.

    By rule: the union of near forms, the same without the exponential with a floor, the form with the best AICc, and
    each form alone.
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


def claims_table() -> str:
    rows = []
    for seeds in (3, 5, 8):
        for effect in (0.2, 0.3, 0.5):
            plan = PlannedClaim(seeds, ReplicateNoise(NOISE), -effect, 8)
            chances = [replace(plan, claims=claims).chances()["less"] for claims in (1, 3, 7, 28)]
            rows.append([str(seeds), f"{effect:g}", *map(percent, chances)])
    return markdown(["seeds", "effect", "1 claim", "3 claims", "7 claims", "28 claims"], rows)


def margins_table() -> str:
    rows, room = [], math.log(1.1)
    for family, pairs in (("7 against a control", control_pairs(8)), ("all 28 pairs", all_pairs(8))):
        for seeds in (5, 8, 12, 20):
            logs = draw_studies([3, seeds], 10_000, 8, seeds, noise=0.05)
            both = [
                simulate_family(pairs, logs, np.repeat([0.0, room], 4), correct, 0.1)
                for correct in (holm, bonferroni)
            ]
            rows.append(
                [family, str(seeds), percent(both[0].alone), *(percent(one.corrected) for one in both)]
            )
    return markdown(["family", "seeds", "alone", "Holm", "Bonferroni"], rows)


def level_table() -> str:
    rows = []
    for noise in (0.05, 0.1, 0.2):
        row = [f"{noise:g}"]
        for margin in (0.05, 0.1):
            plan = PlannedClaim(2, ReplicateNoise(noise), cells=8, margin=margin)
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
    "families": families_table,
    "claims": claims_table,
    "margins": margins_table,
    "level": level_table,
    "looks": looks_table,
    "look-families": look_families_table,
    "noisy-looks": noisy_looks_table,
    "laws": laws_table,
    "predictions": predictions_table,
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
