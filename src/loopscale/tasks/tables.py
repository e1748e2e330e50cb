"""Real data: the tables inside scikit-learn, as prompts of random rows under random projections.

A prompt uses one table. The columns are standardised over the whole table (a constant column becomes 0), and rows are
drawn without replacement. Every prompt draws new coordinates: N(0, 1/columns) combinations of the columns. So a table
of a few hundred rows gives any number of different prompts with the same shape. The study chooses the tables for
training and for testing, and these must differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

TABLE_NAMES = ("breast_cancer", "digits", "iris", "wine")


@dataclass(frozen=True)
class Rows:
    """A table whose columns have mean 0 and variance 1."""

    xs: Float32[Tensor, "rows columns"]
    labels: Int[Tensor, " rows"]

    def fewest(self, classes: int) -> int:
        """Number of rows in the smallest `classes` classes."""
        return int(self.labels.bincount().sort().values[:classes].sum())


@cache
def load_table(table: str) -> Rows:
    """The table from the installed scikit-learn, without any download."""
    import sklearn.datasets  # imported here, because the import takes a second and most tasks need no tables

    dataset = getattr(sklearn.datasets, f"load_{table}")()
    xs = torch.tensor(dataset.data, dtype=torch.float64)
    deviation = xs.std(0, correction=0)
    xs = (xs - xs.mean(0)) / torch.where(deviation > 0, deviation, 1)
    return Rows(xs.float(), torch.tensor(dataset.target).long())


def check_size(tables: Sequence[str], points: int, classes: int | None = None) -> None:
    """Raises ValueError for a table with fewer than `classes` classes, or too few rows in its smallest classes."""
    for table in tables:
        rows = load_table(table)
        available = len(rows.labels.unique())
        if classes and available < classes:
            raise ValueError(
                f"table {table} has {available} classes, not {classes}; write {available} or less"
            )
        most = rows.fewest(classes or available)
        if points > most:
            raise ValueError(
                f"table {table} guarantees only {most} rows for {points} points; write {most} or less"
            )


def excerpts(
    tables: Sequence[str],
    batch_size: int,
    points: int,
    dim: int,
    rng: torch.Generator,
    classes: int | None = None,
) -> tuple[Float[Tensor, "batch points dim"], Int[Tensor, "batch points"]]:
    """Prompts, and the classes of their rows. Every prompt uses `classes` classes (`None` for all) of a random table.

    A prompt numbers its classes 0, 1 .. in a random order. Raises ValueError as `check_size` does.
    """
    check_size(tables, points, classes)
    xs, labels = zip(*(_excerpt(tables, points, dim, rng, classes) for _ in range(batch_size)), strict=True)
    return torch.stack(xs), torch.stack(labels)


def _excerpt(
    tables: Sequence[str], points: int, dim: int, rng: torch.Generator, classes: int | None
) -> tuple[Float[Tensor, "points dim"], Int[Tensor, " points"]]:
    rows = load_table(tables[int(torch.randint(len(tables), (), generator=rng))])
    available = int(rows.labels.max()) + 1
    number = torch.randperm(available, generator=rng)[rows.labels]
    candidates = (number < (classes or available)).nonzero()[:, 0]
    chosen = candidates[torch.randperm(len(candidates), generator=rng)[:points]]
    columns = rows.xs.shape[1]
    return rows.xs[chosen] @ (torch.randn(columns, dim, generator=rng) / columns**0.5), number[chosen]
