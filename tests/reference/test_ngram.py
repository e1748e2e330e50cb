"""The n-gram language model against its formula on dictionaries, and as a reference of translation."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from loopscale.corpora.subwords import END, SEPARATOR
from loopscale.evaluate import prompt_set
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.tasks.translation import Translation


def sentences(task: Translation) -> list[list[int]]:
    """The targets of the training part, with the end."""
    pairs = task._data().train
    return [
        pairs.tokens[row, int(pairs.separators[row]) + 1 : int(pairs.lengths[row])].tolist()
        for row in range(len(pairs))
    ]


class Formula:
    """p(w | h) of the interpolated model, one n-gram at a time."""

    def __init__(self, targets: list[list[int]], order: int, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(order)]
        for target in targets:
            padded = [SEPARATOR] * (order - 1) + target
            self.counts[-1].update(tuple(padded[n : n + order]) for n in range(len(target)))
        for shorter in range(order - 2, -1, -1):
            before = defaultdict[tuple[int, ...], set[int]](set)
            for ngram in self.counts[shorter + 1]:
                before[ngram[1:]].add(ngram[0])
            self.counts[shorter] = Counter({ngram: len(tokens) for ngram, tokens in before.items()})

    def chance(self, history: tuple[int, ...], token: int) -> float:
        counts = self.counts[len(history)]
        shorter = self.chance(history[1:], token) if history else 1 / self.vocabulary
        after = {ngram: count for ngram, count in counts.items() if ngram[:-1] == history}
        if not after:
            return shorter
        once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        own = max(counts[(*history, token)] - discount, 0)
        return (own + discount * len(after) * shorter) / sum(after.values())


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_chances_are_those_of_the_formula(order: int):
    task = Translation()
    solver = Solver.model_validate({"kind": "ngram", "order": order})
    formula = Formula(sentences(task), order, task.vocabulary)
    (batch,) = prompt_set("evaluate", task, 64)
    chances = solver.predict(batch, 1)[0].exp()
    torch.testing.assert_close(chances.sum(-1), torch.ones(64, task.length).double())
    for row, place in [(0, 0), (0, 1), (0, 2), (7, 1), (19, 3)]:
        tokens = batch.tokens[row, :, 0].tolist()
        first = tokens.index(SEPARATOR)
        known = [SEPARATOR] * order + tokens[first + 1 : first + 1 + place]
        history = tuple(known[len(known) - order + 1 :])
        for token in (tokens[first + 1 + place], END, 300):
            expected = formula.chance(history, token)
            assert float(chances[row, first + place, token]) == pytest.approx(expected, rel=1e-9)


def test_longer_histories_foretell_more_and_no_source_is_read():
    errors = dict[int, float]()
    task = Translation()
    (batch,) = prompt_set("evaluate", task, 256)
    for order in (1, 2, 3):
        solver = Solver.model_validate({"kind": "ngram", "order": order})
        errors[order] = float(task.raw_error(solver.predict(batch, 1), batch).mean())
        assert abs(float(task.probes(solver, batch, 1)["other_source"].mean())) < 1e-12
    guess = float(task.raw_error(task.fixed_guess.expand(1, 256, -1, -1), batch).mean())
    assert guess - 0.2 > errors[2] > errors[3]
    assert errors[1] == pytest.approx(guess, abs=0.2), "continuations in the place of frequencies"


def test_the_model_is_the_reference_of_nets_without_their_source():
    for sources, kind in (("own", "adapted_ngram"), ("none", "ngram"), ("other", "ngram")):
        rule = Task.model_validate({"kind": "translation", "sources": sources}).floor_rule
        assert rule is not None
        assert rule.solver["kind"] == kind


def test_orders_that_do_not_fit_an_integer_are_mistakes():
    for order in (0, 5):
        with pytest.raises(ValidationError):
            Solver.model_validate({"kind": "ngram", "order": order})


def test_histories_begin_at_the_separator():
    from loopscale.solvers.ngram import _histories

    found = _histories(np.array([[1, 9, SEPARATOR, 5, 6]]), np.array([2]), 3)
    assert found[0, 2:].tolist() == [[SEPARATOR, SEPARATOR], [SEPARATOR, 5], [5, 6]]
