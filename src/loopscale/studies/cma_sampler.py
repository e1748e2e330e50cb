"""CMA-ES [@hansen2016] as an Optuna sampler whose state is a function of the points so far.

Optuna's own `CmaEsSampler` keeps its state with its trials, as a pickle of many thousand characters. Records hold no
text of this length, and reading a pickle from records runs code from the records. This sampler uses the same package,
`cmaes`, and the same start: the middle of the ranges, and a sixth of their width. Before each proposal the sampler
tells `cmaes` all points again.
"""

import math
from typing import Any

import numpy as np
from cmaes import CMA  # pyright: ignore[reportMissingTypeStubs]: the package has types of its own
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

Range = FloatDistribution | IntDistribution
SIGMA = 1 / 6
"""Standard deviation of the first generation, relative to the ranges."""


class CmaSampler(BaseSampler):
    """Points in the order of their trials make up the generations. Choices are drawn at random.

    A point that was pruned or diverged counts as worse than all others. Points that CMA-ES has not proposed, such as
    known points, count too.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = RandomSampler(seed=seed)

    @override
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The ranges of numbers; none before the first result, so the first point is random."""
        space = IntersectionSearchSpace().calculate(study)
        return {name: kind for name, kind in space.items() if isinstance(kind, Range) and not kind.single()}

    @override
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        ranges = {name: kind for name, kind in search_space.items() if isinstance(kind, Range)}
        if not ranges:
            return {}
        ends = np.array([[0.0, 1.0]] * len(ranges))
        evolution = CMA(np.full(len(ranges), 0.5), SIGMA, ends, seed=self._seed)
        over = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        size = evolution.population_size
        for start in range(0, len(over) - size + 1, size):
            evolution.tell([(_place(each, ranges), _value(each)) for each in over[start : start + size]])
        proposal = evolution.ask()
        return {
            name: _setting(kind, share) for (name, kind), share in zip(ranges.items(), proposal, strict=True)
        }

    @override
    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _value(trial: FrozenTrial) -> float:
    return trial.value if trial.state is TrialState.COMPLETE and trial.value is not None else math.inf


def _place(trial: FrozenTrial, ranges: dict[str, Range]) -> np.ndarray:
    """The point, each setting as a share of its range."""
    places: list[float] = []
    for name, kind in ranges.items():
        low, high = _ends(kind)
        value = math.log(trial.params[name]) if kind.log else trial.params[name]
        places.append((value - low) / (high - low))
    return np.array(places)


def _setting(kind: Range, share: float) -> int | float:
    """The value at a share of the range."""
    low, high = _ends(kind)
    value = low + float(share) * (high - low)
    value = math.exp(value) if kind.log else value
    if kind.step is not None and not kind.log:
        value = kind.low + kind.step * round((value - kind.low) / kind.step)
    value = round(value) if isinstance(kind, IntDistribution) else value
    return min(kind.high, max(kind.low, value))


def _ends(kind: Range) -> tuple[float, float]:
    """The ends on the scale of the range. Every value of a range with a step has a part of its own."""
    half = (kind.step or 0.0) / 2
    low, high = kind.low - half, kind.high + half
    return (math.log(low), math.log(high)) if kind.log else (low, high)
