"""The file of a curve: the error of a predictor after every loop, at every point."""

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loopscale.records.deferred_imports import pa, parquet

Grid = NDArray[np.float64]
LATER = ("median",)
"""Columns that older records lack. They are NULL there."""


def encode_curve(
    error: Grid, sem: Grid, raw: Grid, median: Grid | None = None, seen: Sequence[int] | None = None
) -> bytes:
    """Write arrays [loops, points] as a Parquet file with columns loop (from 1), point, error, sem, raw, median.

    Without a median the file has no such column. `seen` has the number of pairs before every point, by default 0, 1,
    ...
    """
    loops, points = error.shape
    pairs = np.arange(points) if seen is None else np.array(seen)
    columns = {
        "loop": pa.array(np.repeat(np.arange(1, loops + 1), points), pa.int32()),
        "point": pa.array(np.tile(pairs, loops), pa.int32()),
        "error": error.ravel(),
        "sem": sem.ravel(),
        "raw": raw.ravel(),
    } | ({} if median is None else {"median": median.ravel()})
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, compression="zstd")
    return file.getvalue()


def with_later_columns(curves: "pa.Table") -> "pa.Table":
    """Add the columns that older records lack, as NULL."""
    for name in LATER:
        if name not in curves.column_names:
            curves = curves.append_column(name, pa.nulls(len(curves), pa.float64()))
    return curves
