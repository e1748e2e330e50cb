"""Real data: the tables that ship inside scikit-learn, as prompts of random rows under random projections.

A prompt is of one table. Its columns are standardised over the whole table (a constant one becomes 0), its rows
drawn without replacement, its coordinates N(0, 1/columns) combinations of the columns that every prompt draws
anew: so a table of a few hundred rows gives as many different prompts as one likes, all of one geometry. Which
tables train and which test is the study's to say: it must name different ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

TABLES = ("breast_cancer", "digits", "iris", "wine")


@dataclass(frozen=True)
class Rows:
    """A table, its columns with mean 0 and variance 1."""

    xs: Float32[Tensor, "rows columns"]
    labels: Int[Tensor, " rows"]

    def fewest(self, classes: int) -> int:
        """The rows of its smallest `classes` classes."""
        return int(self.labels.bincount().sort().values[:classes].sum())


@cache
def load(table: str) -> Rows:
    """The table, out of the installed scikit-learn: nothing is fetched."""
    import sklearn.datasets  # takes a second to import, and most tasks need none of it

    found = getattr(sklearn.datasets, f"load_{table}")()
    xs = torch.tensor(found.data, dtype=torch.float64)
    spread = xs.std(0, correction=0)
    xs = (xs - xs.mean(0)) / torch.where(spread > 0, spread, 1)
    return Rows(xs.float(), torch.tensor(found.target).long())


def check_size(tables: Sequence[str], points: int, classes: int | None = None) -> None:
    """Raises ValueError for a table without so many classes, or rows of so many classes."""
    for table in tables:
        rows = load(table)
        there = len(rows.labels.unique())
        if classes and there < classes:
            raise ValueError(f"table {table} has {there} classes, not {classes}; write {there} or less")
        most = rows.fewest(classes or there)
        if points > most:
            raise ValueError(f"table {table} may have only {most} rows for {points} points; write fewer")


def excerpts(
    tables: Sequence[str],
    batch_size: int,
    points: int,
    dim: int,
    rng: torch.Generator,
    classes: int | None = None,
) -> tuple[Float[Tensor, "batch points dim"], Int[Tensor, "batch points"]]:
    """Prompts, each of one of the tables and of so many of its classes (`None` for all), and the rows' classes.

    The classes of a prompt are numbered 0 .. in a random order. Raises ValueError as `check_size` does.
    """
    check_size(tables, points, classes)
    found = [_excerpt(tables, points, dim, rng, classes) for _ in range(batch_size)]
    return torch.stack([xs for xs, _ in found]), torch.stack([labels for _, labels in found])


def _excerpt(
    tables: Sequence[str], points: int, dim: int, rng: torch.Generator, classes: int | None
) -> tuple[Float[Tensor, "points dim"], Int[Tensor, " points"]]:
    rows = load(tables[int(torch.randint(len(tables), (), generator=rng))])
    there = int(rows.labels.max()) + 1
    number = torch.randperm(there, generator=rng)[rows.labels]
    among = (number < (classes or there)).nonzero()[:, 0]
    chosen = among[torch.randperm(len(among), generator=rng)[:points]]
    columns = rows.xs.shape[1]
    return rows.xs[chosen] @ (torch.randn(columns, dim, generator=rng) / columns**0.5), number[chosen]
