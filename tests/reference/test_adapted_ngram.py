"""The n-gram model adapted to the source, against its formula and against the models that it joins."""

import pytest
import torch

from loopscale.corpora.subwords import END, SEPARATOR
from loopscale.evaluate import prompt_set
from loopscale.solvers import adapted_ngram
from loopscale.solvers.base import Solver
from loopscale.tasks.translation import Translation, unigrams

TASK = Translation()


def nats(kind: str) -> float:
    (batch,) = prompt_set("evaluate", TASK, 128)
    solver = Solver.model_validate({"kind": kind})
    return float(TASK.raw_error(solver.predict(batch, 1), batch).mean())


def test_chances_are_those_of_the_formula():
    (batch,) = prompt_set("evaluate", TASK, 16)
    strength = adapted_ngram._fitted_strength(TASK._data(), TASK.vocabulary, 3)
    by_history, by_source, adapted = (
        Solver.model_validate({"kind": kind}).predict(batch, 1)[0].exp()
        for kind in ("ngram", "word_translation", "adapted_ngram")
    )
    frequencies = unigrams(TASK._data(), TASK.vocabulary)
    for row in (0, 5, 11):
        place = batch.tokens[row, :, 0].tolist().index(SEPARATOR) + 1
        scaled = [
            float(by_history[row, place, token])
            * float(by_source[row, place, token] / frequencies[token]) ** strength
            for token in range(TASK.vocabulary)
        ]
        for token in (int(batch.targets[row, place]), END, 300):
            assert float(adapted[row, place, token]) == pytest.approx(scaled[token] / sum(scaled), rel=1e-9)


def test_the_validation_part_chooses_the_strength():
    pairs = TASK._data().validation
    (batch,) = prompt_set("validate", TASK, adapted_ngram.WEIGHED_PAIRS)
    assert len(pairs) >= adapted_ngram.WEIGHED_PAIRS
    history, source = adapted_ngram._experts(batch, 3)
    errors = [
        float(TASK.raw_error((history + strength * source)[None], batch).mean())
        for strength in adapted_ngram.STRENGTHS.tolist()
    ]
    chosen = adapted_ngram._fitted_strength(TASK._data(), TASK.vocabulary, 3)
    assert adapted_ngram.STRENGTHS[torch.tensor(errors).argmin()] == chosen
    assert 0 < chosen < adapted_ngram.STRENGTHS[-1], "the candidates hold the least error"


def test_both_sources_of_knowledge_together_foretell_more_than_each():
    assert nats("adapted_ngram") < min(nats("ngram"), nats("word_translation")) - 0.5
