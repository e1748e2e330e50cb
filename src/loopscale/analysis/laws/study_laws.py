"""The laws that a study asks for, fitted to its results and judged: one for every combination of the other axes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopscale.analysis.axes import CURVES, cells_along, in_step, place_on_axis
from loopscale.analysis.laws.law import Law, fit_best_form, fit_law, with_pooled_noise
from loopscale.analysis.laws.predictions import comparable, predict
from loopscale.analysis.laws.verdict import compare_rates
from loopscale.analysis.results import Array, CellResult, Results, TrialResult, mean


@dataclass(frozen=True)
class Sample:
    """The observations of one law.

    Attributes
    ----------
    cell
        The settings that the observations share, in words.
    x, y, group
        Places on the axis, errors and the index of the run, [observations].
    settings
        The settings of the first run, by dotted path, from which a bound takes its own.
    """

    cell: str
    x: Array
    y: Array
    group: np.ndarray
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Unfitted:
    """A combination for which too little has finished for a law."""

    of: str
    along: str
    cell: str
    because: str


def study_laws(results: Results) -> tuple[list[Law], list[Unfitted]]:
    """Every law of the study with its verdict, and the combinations that have none yet."""
    fitted: list[Law] = []
    unfitted: list[Unfitted] = []
    for asked in results.study.get("laws") or []:
        of, along = asked.get("of", "error"), asked["along"]
        forms = [asked["form"]] if isinstance(asked.get("form", "power"), str) else list(asked["form"])
        laws, settings = [], []
        for sample in samples(results, of, along):
            try:
                law = fit_best_form(forms, sample.x, sample.y, sample.group)
            except ValueError as error:
                unfitted.append(Unfitted(of, along, sample.cell, str(error)))
                continue
            beside = () if along in CURVES else in_step(results, along)
            laws.append(replace(law, of=of, along=along, beside=beside, cell=sample.cell))
            settings.append(sample.settings)
        if along in CURVES:
            laws = with_pooled_noise(laws)
        for law, of_trial in zip(laws, settings, strict=True):
            pooled_over = sum(other.shape == law.shape for other in laws) if along in CURVES else 0
            fitted.append(with_verdict(law, asked.get("theory"), of_trial, pooled_over))
    return fitted, unfitted


def with_verdict(
    law: Law, theory: str | Mapping[str, Any] | None, settings: Mapping[str, Any], pooled_over: int = 0
) -> Law:
    """The law beside the bound's law: the same form, fitted to the bound's own values over the same range.

    Only the rates are compared, because most bounds hide their constants.

    Parameters
    ----------
    pooled_over
        Along a curve, the number of laws over which the noise of the rate was pooled.
    """
    if not theory:
        return law
    name = theory if isinstance(theory, str) else str(theory["kind"])
    try:
        values = predict(theory, settings, law.along, law.x, law.of)
        predicted = fit_law(law.form, law.x, values, np.arange(len(values))).rate
    except ValueError as error:
        return replace(law, theory=name, note=f"no prediction: {str(error).splitlines()[0]}")
    verdict = compare_rates(
        law.rate, law.low, law.high, predicted, len(law.x), min(law.runs), pooled_over, law.form
    )
    absolute = comparable(name, law.of, law.along)
    return replace(
        law, theory=name, predicted=predicted, theory_y=tuple(values), verdict=verdict, absolute=absolute
    )


def samples(results: Results, of: str, along: str) -> Iterator[Sample]:
    """The observations of each law. Along a curve each cell has a law; along an axis, cells that differ there alone."""
    if along in CURVES:
        for cell in results.cells:
            if cell.runs:
                yield _curve_sample(cell, of, along)
        return
    for label, cells in cells_along(results, along).items():
        runs = [run for cell in cells for run in cell.runs]
        runs = [run for run in runs if np.isfinite(place_on_axis(run, along))]
        if runs:
            x = np.array([place_on_axis(run, along) for run in runs])
            y = np.array([run[of] for run in runs])
            yield Sample(label, x, y, np.arange(len(runs)), runs[0].evaluated)


def _curve_sample(cell: CellResult, of: str, along: str) -> Sample:
    """Along `loop`, the trained loops 1 .. T. Along `point`, loop T after at least one pair."""
    curves = [_curve_values(run, of, along) for run in cell.runs]
    groups = [np.full(len(x), index) for index, (x, _) in enumerate(curves)]
    x, y = (np.concatenate([curve[part] for curve in curves]) for part in (0, 1))
    return Sample(cell.label, x, y, np.concatenate(groups), cell.runs[0].evaluated)


def _curve_values(run: TrialResult, of: str, along: str) -> tuple[Array, Array]:
    curve = run.curve
    noise = run["raw_error"] - run["excess"] if of == "excess" else 0.0
    grid = curve.raw if of in ("raw_error", "excess") else curve.error
    if along == "loop":
        kept = curve.loops <= run.loop
        values = grid[kept][:, -1:] if of == "error_last" else grid[kept]
        return curve.loops[kept].astype(np.float64), np.array([mean(row) for row in values]) - noise
    kept = curve.points > 0
    row = grid[curve.row(run.loop)] if curve else np.empty(0)
    return curve.points[kept].astype(np.float64), row[kept] - noise
