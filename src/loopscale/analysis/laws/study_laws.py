"""The laws that a study asks for, fitted to its records and judged: one for every combination of the other
axes.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from loopscale.analysis.axes import CURVES, combinations, in_step, place
from loopscale.analysis.laws.law import Law, choose, fit, pooled
from loopscale.analysis.laws.predictions import comparable, predict
from loopscale.analysis.laws.verdict import judge
from loopscale.analysis.tables import StudyTable, answers, curve_at, evaluated, loop_of, numbers


@dataclass(frozen=True)
class Sample:
    """What one law is fitted to."""

    cell: str
    x: np.ndarray
    y: np.ndarray
    group: np.ndarray
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Unfitted:
    """A combination of which too little has finished for a law."""

    of: str
    along: str
    cell: str
    because: str


def laws(study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame) -> tuple[list[Law], list[Unfitted]]:
    """Every law of the study with its verdict, and the combinations that have none yet."""
    fitted: list[Law] = []
    missing: list[Unfitted] = []
    for asked in study.get("laws") or []:
        of, along = asked.get("of", "error"), asked["along"]
        forms = [asked["form"]] if isinstance(asked.get("form", "power"), str) else list(asked["form"])
        found = []
        for sample in samples(study, trials, curves, of, along):
            try:
                law = choose(forms, sample.x, sample.y, sample.group)
            except ValueError as error:
                missing.append(Unfitted(of, along, sample.cell, str(error)))
                continue
            beside = () if along in CURVES else in_step(study, along)
            found.append((replace(law, of=of, along=along, beside=beside, cell=sample.cell), sample))
        done = pooled([law for law, _ in found]) if along in CURVES else [law for law, _ in found]
        for law, (_, sample) in zip(done, found, strict=True):
            kin = sum(other.shape == law.shape for other in done) if along in CURVES else 0
            fitted.append(judged(law, asked.get("theory"), sample.settings, kin))
    return fitted, missing


def judged(
    law: Law, theory: str | Mapping[str, Any] | None, settings: Mapping[str, Any], kin: int = 0
) -> Law:
    """The law beside the one of the same form that the bound's own values over the same range give.

    Only its rate is compared: the bounds' constants are mostly hidden. `kin`: along a curve, over how many laws the
    noise of the rate was pooled.
    """
    if not theory:
        return law
    name = theory if isinstance(theory, str) else str(theory["kind"])
    try:
        values = predict(theory, settings, law.along, law.x, law.of)
        predicted = fit(law.form, law.x, values, np.arange(len(values))).rate
    except ValueError as error:
        return replace(law, theory=name, note=f"no prediction: {str(error).splitlines()[0]}")
    runs = min(law.runs)
    verdict = judge(law.rate, law.low, law.high, predicted, len(law.x), runs, kin, law.form)
    absolute = comparable(name, law.of, law.along)
    return replace(
        law, theory=name, predicted=predicted, theory_y=tuple(values), verdict=verdict, absolute=absolute
    )


def samples(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, of: str, along: str
) -> Iterator[Sample]:
    """The data of each law. Along a curve every cell has its own; along an axis, cells that differ along it alone."""
    if along in CURVES:
        for cell in study["cells"]:
            rows, _ = answers(trials, cell["key"])
            if len(rows):
                yield _curve_sample(cell["label"], rows, curves, of, along)
        return
    for label, members in combinations(study, trials, along).items():
        rows = [row for _, mine in members for _, row in mine.iterrows()]
        x = np.array([place(row, along) for row in rows])
        here = [row for row, at in zip(rows, x, strict=True) if np.isfinite(at)]
        if here:
            y = numbers(row[of] for row in here)
            yield Sample(label, x[np.isfinite(x)], y, np.arange(len(here)), evaluated(here[0]))


def _curve_sample(label: str, rows: pd.DataFrame, curves: pd.DataFrame, of: str, along: str) -> Sample:
    """Along `loop`, the trained loops 1 .. T; along `point`, loop T, after at least one pair."""
    xs, ys, groups = [], [], []
    for _, row in rows.iterrows():
        curve = curve_at(curves, row["trial"])
        at = loop_of(row, curve)
        noise = float(numbers([row["raw_error"]])[0] - numbers([row["excess"]])[0]) if of == "excess" else 0.0
        value = "raw" if of in ("raw_error", "excess") else "error"
        if along == "loop":
            curve = curve[curve["loop"] <= at]
            if of == "error_last":
                curve = curve[curve["point"] == curve["point"].max()]
        else:
            curve = curve[(curve["loop"] == at) & (curve["point"] > 0)]
        means = curve.groupby(along)[value].mean() - noise
        xs.append(numbers(means.index))
        ys.append(numbers(means))
        groups.append(np.full(len(means), len(groups)))
    return Sample(
        label, np.concatenate(xs), np.concatenate(ys), np.concatenate(groups), evaluated(rows.iloc[0])
    )
