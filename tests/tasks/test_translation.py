"""Translation: sequences, epochs, weights, held-out parts, other sources, decoding, and mistakes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.corpora.files import part_files
from loopscale.corpora.number_words import number_corpus
from loopscale.corpora.subwords import BEGIN, END, PADDING, SEPARATOR
from loopscale.errors import CorpusError, UsageError
from loopscale.evaluate import acting, canonical, prompt_set
from loopscale.solvers.base import Solver
from loopscale.tasks import sentence_pairs
from loopscale.tasks.translation import POOL, ROUNDED, Translation
from loopscale.training.loop import train
from loopscale.training.trial import Trial


def texts_of(task: Translation, batch: Batch) -> list[tuple[str, str]]:
    """Source and target of every prompt, from its tokens."""
    subwords, found = task._data().subwords, list[tuple[str, str]]()
    for tokens in batch.tokens[..., 0].tolist():
        place = tokens.index(SEPARATOR)
        found.append((subwords.decode(tokens[1:place]), subwords.decode(tokens[place + 1 :])))
    return found


def written_corpus(folder: Path, pairs: int = 40) -> Path:
    corpus = number_corpus()
    parts = {"train": corpus.train[:pairs], "validation": corpus.validation[:20], "test": corpus.test[:30]}
    folder.mkdir()
    for name, content in part_files(parts, "de", "en").items():
        (folder / name).write_bytes(content)
    return folder


def test_a_prompt_is_a_pair_and_its_targets_are_the_next_tokens():
    task = Translation()
    batch = task.sample(50, stream(0))
    pairs = set(number_corpus().train)
    assert set(texts_of(task, batch)) <= pairs
    for tokens, targets, weights in zip(batch.tokens[..., 0], batch.targets, batch.weights, strict=True):
        asked = weights > 0
        place = tokens.tolist().index(SEPARATOR)
        assert tokens[0] == BEGIN
        assert asked.nonzero()[0] == place
        assert targets[asked][-1] == END
        assert torch.equal(targets[asked][:-1], tokens[place + 1 : place + int(asked.sum())])
        assert (tokens[place + int(asked.sum()) + 1 :] == PADDING).all()


def test_the_mean_error_is_the_cross_entropy_of_all_tokens():
    task = Translation()
    logits = torch.randn(3, 40, task.length, task.vocabulary, generator=stream("logits")).double()
    (batch,) = prompt_set("evaluate", task, 40)
    asked = batch.weights > 0
    for step, errors in zip(logits, task.raw_error(logits, batch), strict=True):
        by_torch = torch.nn.functional.cross_entropy(step[asked], batch.targets[asked])
        assert errors.mean().item() == pytest.approx(by_torch.item())


def test_an_epoch_has_every_pair_once_and_the_next_epoch_has_another_order():
    task, size = Translation(), 64
    batches = len(number_corpus().train) // size
    epochs = [
        [text for number in numbers for text in texts_of(task, task.training_batch(size, 3, number))]
        for numbers in (range(1, batches + 1), range(batches + 1, 2 * batches + 1))
    ]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == batches * size
    assert epochs[0] != epochs[1]


def test_batches_hold_pairs_of_similar_length_in_random_order():
    task = Translation()
    spread, lengths = list[int](), list[int]()
    for number in range(1, POOL + 1):
        batch = task.training_batch(64, 0, number)
        sizes = (batch.tokens[..., 0] != PADDING).sum(1)
        spread.append(int(sizes.max() - sizes.min()))
        lengths.append(batch.tokens.shape[1])
    assert max(sorted(spread)[: POOL - 4]) <= 2
    assert lengths != sorted(lengths)
    assert {length % ROUNDED for length in lengths} == {0}


def test_a_batch_depends_on_seed_and_number_alone():
    task = Translation()
    late = task.training_batch(16, 5, 700)
    task.training_batch(16, 5, 1)
    torch.testing.assert_close(task.training_batch(16, 5, 700).tokens, late.tokens)
    assert texts_of(task, task.training_batch(16, 6, 700)) != texts_of(task, late)


def test_held_out_sets_come_from_their_parts_and_no_pair_comes_twice():
    task, corpus = Translation(), number_corpus()
    for purpose, part in (("validate", corpus.validation), ("evaluate", corpus.test)):
        found = [text for batch in prompt_set(purpose, task, 300) for text in texts_of(task, batch)]
        assert len(set(found)) == 300
        assert set(found) <= set(part)


def test_more_prompts_than_pairs_are_a_mistake():
    with pytest.raises(UsageError, match=r"the test part has 2000 pairs .* lower evaluate\.prompts"):
        next(prompt_set("evaluate", Translation(), 2001))


def test_a_set_in_blocks_has_the_weights_of_the_whole_set():
    task = Translation()
    batches = list(prompt_set("validate", task, 500))
    assert len(batches) > 1
    assert sum(float(batch.weights.sum()) for batch in batches) == pytest.approx(500)


def test_without_sources_a_prompt_is_the_target_alone():
    task, own = Translation(sources="none"), Translation()
    one, other = task.sample(20, stream(0)), own.sample(20, stream(0))
    assert texts_of(task, one) == [("", target) for _, target in texts_of(own, other)]
    torch.testing.assert_close(one.weights.sum(1), other.weights.sum(1))


def test_with_other_sources_targets_stay_and_sources_change():
    task, own = Translation(sources="other"), Translation()
    one, other = texts_of(task, task.sample(200, stream(0))), texts_of(own, own.sample(200, stream(0)))
    assert [target for _, target in one] == [target for _, target in other]
    changed = sum(first[0] != second[0] for first, second in zip(one, other, strict=True))
    assert changed > 190


def test_other_sources_cost_a_translator_much_and_a_language_model_nothing():
    task = Translation()
    (batch,) = prompt_set("evaluate", task, 64)
    translator = task.probes(Solver.model_validate({"kind": "word_translation"}), batch, 1)
    assert float(translator["other_source"].mean()) > 0.3

    class Guess(Solver):
        def predict(self, batch: Batch, steps: int) -> torch.Tensor:
            return task.fixed_guess.expand(steps, len(batch.targets), -1, -1)

    assert float(task.probes(Guess(), batch, 1)["other_source"].abs().max()) < 1e-6


@pytest.mark.slow
def test_a_perfect_player_translates_perfectly():
    task = Translation()
    pairs, subwords = task._data().test, task._data().subwords
    known = dict(pairs.texts)

    def answer(batch: Batch) -> torch.Tensor:
        logits = torch.zeros(len(batch.tokens), 1, task.vocabulary)
        for row, tokens in enumerate(batch.tokens[..., 0].tolist()):
            place = tokens.index(SEPARATOR)
            (target,) = subwords.encode([known[subwords.decode(tokens[1:place])]])
            said = len(tokens) - place - 1
            logits[row, 0, [*target, END][min(said, len(target))]] = 1
        return logits

    rows = np.arange(40)
    assert task.translate(answer, pairs, rows) == [pairs.texts[row][1] for row in rows]
    outcomes = task.outcomes(answer)
    assert float(outcomes["bleu"].mean()) == pytest.approx(100)
    assert float(outcomes["chrf"].mean()) == pytest.approx(100)


def test_word_translation_is_better_than_frequencies_and_reads_the_source():
    task, solver = Translation(), Solver.model_validate({"kind": "word_translation"})
    (batch,) = prompt_set("evaluate", task, 64)
    words = task.raw_error(solver.predict(batch, 1), batch).mean()
    guess = task.raw_error(task.fixed_guess.expand(1, 64, -1, -1), batch).mean()
    assert words < guess - 0.5
    torch.testing.assert_close(
        solver.predict(batch, 1).exp().sum(-1), torch.ones(1, 64, task.length).double()
    )


def test_the_place_of_a_corpus_is_no_part_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def trial(corpus: str) -> Trial:
        task = {"kind": "translation", "corpus": corpus}
        return Trial.model_validate({"task": task, "model": {"kind": "gpt2"}})

    one = trial(str(written_corpus(tmp_path / "one")))
    other = trial(str(written_corpus(tmp_path / "other")))
    different = trial(str(written_corpus(tmp_path / "different", pairs=39)))
    assert one.key == other.key != different.key
    assert canonical(one.task) == canonical(other.task) != canonical(different.task)
    monkeypatch.setenv(sentence_pairs.CORPORA_FOLDER, str(tmp_path))
    assert trial("one").key == one.key


def test_a_recorded_task_is_read_without_its_corpus(tmp_path: Path):
    folder = written_corpus(tmp_path / "there")
    task = Translation(corpus=str(folder))
    record = task.model_dump(mode="json")
    folder.rename(tmp_path / "gone")
    sentence_pairs.find_corpus.cache_clear()
    assert Translation.model_validate(record) == task
    with pytest.raises(CorpusError, match="there is no folder"):
        task.sample(1, stream(0))


def test_a_changed_corpus_is_refused(tmp_path: Path):
    folder = written_corpus(tmp_path / "there")
    task = Translation(corpus=str(folder))
    sentence_pairs.find_corpus.cache_clear()
    (folder / "train.de").write_text((folder / "train.de").read_text().replace("tausend", "Tausend"))
    with pytest.raises(CorpusError, match="has changed"):
        task.sample(1, stream(0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vocabulary": 200}, "vocabulary"),
        ({"length": 0}, "length"),
        ({"languages": ["de"]}, "languages"),
        ({"sources": "shuffled"}, "sources"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], words: str):
    with pytest.raises(ValidationError, match=words):
        Translation.model_validate(settings)


def test_a_missing_corpus_is_named_with_its_remedy_when_its_sentences_are_needed():
    task = Translation(corpus="no such folder")
    with pytest.raises(CorpusError, match="there is no folder no such folder; `loopscale corpus debian"):
        task.sample(1, stream(0))


@pytest.mark.slow
def test_a_length_that_no_pair_has_is_a_mistake():
    with pytest.raises(CorpusError, match="at most 4 tokens; write a larger length"):
        Translation(length=4).sample(1, stream(0))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"model": {"kind": "lstm"}}, "lstm reads real numbers"),
        ({"model": {"kind": "encoder"}}, "looks ahead"),
        ({"training": {"compile": "on"}}, "sentences differ in length"),
        ({"training": {"graph": "auto"}}, "sentences differ in length"),
        ({"training": {"data": "device"}}, "the sentences are on the host"),
        ({"training": {"curriculum": {"dim": 1, "points": 1, "every": 1}}}, "no dim and points"),
    ],
)
def test_what_a_translation_cannot_have_is_refused(other: dict[str, Any], words: str):
    with pytest.raises(ValidationError, match=words):
        Trial.model_validate({"task": {"kind": "translation"}, "model": {"kind": "gpt2"}} | other)


def test_a_tied_read_out_needs_a_vocabulary():
    with pytest.raises(ValidationError, match="tied is for tokens of a vocabulary"):
        Trial.model_validate({"task": {"kind": "linear_regression"}, "model": {"kind": "gpt2", "tied": True}})


@pytest.mark.slow
def test_word_translation_plays_too_and_reports_show_its_translations():
    task = Translation()
    acted = acting(Solver.model_validate({"kind": "word_translation"}), task, 1)
    assert set(acted.values) == {f"{name}{end}" for name in task.outcome_names for end in ("", "_sem")}
    assert acted.values["bleu"] < 10
    assert [(each.given, each.wanted) for each in acted.examples] == list(task._data().test.texts[:5])
    assert all(each.answer for each in acted.examples)


def test_a_resumed_training_sees_the_same_sentences_and_ends_at_the_same_weights():
    settings = {"kind": "gpt2", "layers": 1, "width": 8, "heads": 2}
    training = {"steps": 6, "batch_size": 8, "eval_every": 3}
    trial = Trial.model_validate({"task": {"kind": "translation"}, "model": settings, "training": training})
    first, last = train(trial)
    saved = next(iter(train(trial))).state()
    (resumed,) = train(trial, saved)
    assert resumed.metrics == last.metrics
    assert first.metrics != last.metrics
    for one, other in zip(resumed.learner.net.parameters(), last.learner.net.parameters(), strict=True):
        assert torch.equal(one, other)
