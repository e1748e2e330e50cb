"""A curve as the file that a run keeps it in: the error of a predictor after every loop, at every point."""

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float64]


def pack(
    error: Grid, sem: Grid, raw: Grid, median: Grid | None = None, seen: Sequence[int] | None = None
) -> bytes:
    """Arrays [loops, points] as Parquet with columns loop (from 1), point, error, sem, raw, median.

    Without a median, as in records from before there was one, it has no such column. `point` is the number of pairs
    that a query has seen, from `seen`, by default 0, 1, 2 ..
    """
    import pyarrow as pa
    from pyarrow import parquet

    loops, points = error.shape
    places = np.arange(points) if seen is None else np.array(seen)
    columns = {
        "loop": pa.array(np.repeat(np.arange(1, loops + 1), points), pa.int32()),
        "point": pa.array(np.tile(places, loops), pa.int32()),
        "error": error.ravel(),
        "sem": sem.ravel(),
        "raw": raw.ravel(),
    } | ({} if median is None else {"median": median.ravel()})
    table = pa.table(columns)
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()
