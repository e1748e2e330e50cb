"""Copying as a reference of translation: its translations are the sources."""

import torch

from loopscale.corpora.subwords import BEGIN, END, SEPARATOR
from loopscale.evaluate import prompt_set
from loopscale.solvers.base import Solver
from loopscale.tasks.translation import Translation

SOLVER = Solver.model_validate({"kind": "copied_source"})


def test_each_query_is_answered_with_the_next_token_of_the_source():
    task = Translation()
    (batch,) = prompt_set("evaluate", task, 32)
    chances = SOLVER.predict(batch, 2)[1].exp()
    torch.testing.assert_close(chances.sum(-1), torch.ones(32, task.length).double())
    for row, tokens in enumerate(batch.tokens[..., 0].tolist()):
        place = tokens.index(SEPARATOR)
        assert tokens[0] == BEGIN
        wanted = [*tokens[1:place], END]
        found = chances[row, place : place + len(wanted)].argmax(-1).tolist()
        assert found == wanted[: len(found)]


def test_greedy_translations_are_the_sources():
    examples = Translation().examples(lambda batch: SOLVER.predict(batch, 1)[0])
    assert [example.answer for example in examples] == [example.given for example in examples]


def test_copying_is_worse_than_words_on_number_words():
    task = Translation()
    (batch,) = prompt_set("evaluate", task, 64)
    words = Solver.model_validate({"kind": "word_translation"})
    errors = [float(task.raw_error(solver.predict(batch, 1), batch).mean()) for solver in (SOLVER, words)]
    assert errors[0] > errors[1] + 0.5
