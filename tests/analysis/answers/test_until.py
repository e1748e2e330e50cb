"""Claims of a study with `until: decided`: readers give the words of the decisions, from a store and from an export."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from loopscale.analysis.answers.claims import JudgedClaim, claim_notes, judged_claims
from loopscale.analysis.answers.findings import claim_question
from loopscale.analysis.load import load_results
from loopscale.analysis.results import Results
from loopscale.records.model import STUDY, STUDY_JSON, Note
from loopscale.records.stores.base import Store as RealStore
from loopscale.records.stores.opening import open_store
from loopscale.records.transfer import export_records, import_records
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.job import Job
from loopscale.studies.spec import Study, cell_counts
from tests.runner.decide.test_until import CLEAR, PLATEAU, SAME, Trained, claim, deciding, steps
from tests.runner.simulated_study import Store, complete


def recorded_in(place: Path, made: Study, store: Store) -> RealStore:
    """A real store with the notes of a simulated study."""
    real = open_store(place, create=True)
    document = json.dumps(made.document() | {"plan": cell_counts(made)}).encode()
    with MlflowWriter(real, made.name, {}) as writer:
        for note in [Note(STUDY, artifacts=((STUDY_JSON, document),)), *store.notes]:
            writer.write(note)
        assert writer.flush(60)
    return real


def words(claims: tuple[JudgedClaim, ...]) -> dict[str, str]:
    return {each.text: each.word for each in claims}


def results_of(tmp_path: Path, made: Study, workers: Trained) -> tuple[Results, Store, RealStore]:
    store = Store()
    complete(made, workers, store)
    real = recorded_in(tmp_path / "store", made, store)
    return load_results(real, made.name), store, real


CLAIMS: list[dict[str, Any]] = [
    CLEAR,
    SAME,
    claim(2, 4),
    claim(1, {"solver": "least_squares"}, of="regret"),
    claim(4, 4, text="more loops") | {"first": {"training.loops": 4, "loop": 8}},
]


@pytest.mark.parametrize("margin", [None, 0.3])
def test_readers_of_a_store_and_of_an_export_give_the_words_of_the_decisions(
    tmp_path: Path, margin: float | None
):
    made = deciding(*({**each, "margin": margin} for each in CLAIMS))
    results, store, real = results_of(tmp_path, made, Trained(2, means={1: -1.0, 2: -0.1}))
    decided = {each.text: each.word for each in store.decisions()}
    assert len(decided) == len(CLAIMS)
    assert len(set(decided.values())) > 1
    assert words(judged_claims(results)) == decided
    export_records(real, made.name, tmp_path / "export")
    imported = open_store(tmp_path / "imported", create=True)
    import_records(imported, tmp_path / "export")
    for place in (open_store(tmp_path / "export"), imported):
        read = load_results(place, made.name)
        assert words(judged_claims(read)) == decided
        assert read.decisions == results.decisions or repr(read.decisions) == repr(results.decisions)


def test_an_interval_is_that_of_the_look(tmp_path: Path):
    results, store, _ = results_of(tmp_path, deciding(SAME), Trained(1))
    (judged,) = judged_claims(results)
    last = store.decisions()[-1]
    assert judged.interval is not None
    assert (judged.interval.low, judged.interval.high) == pytest.approx((last.low, last.high), rel=1e-6)
    assert judged.sides.contrast is not None
    assert judged.interval.low < judged.sides.contrast.ratio()[1]
    assert "at all looks together (3, 5, 8, 12, 18, 27 replicates)" in claim_notes([judged])[0]


def test_a_futile_claim_is_named_with_its_cost(tmp_path: Path):
    results, store, _ = results_of(tmp_path, deciding(SAME, until={"futile": 0.4}), Trained(1))
    (judged,) = judged_claims(results)
    last = store.decisions()[-1]
    assert steps(store)[-1][3] == "futile"
    assert judged.futile
    assert math.isfinite(last.needed)
    words = f"A verdict would take about {last.needed:,.0f} more runs"
    assert words in judged.sentence
    question = claim_question(results, judged)
    assert words in question.because
    assert question.more_trials == round(last.needed)


def test_a_claim_whose_nets_have_not_learnt_has_the_same_word_everywhere(tmp_path: Path):
    results, store, _ = results_of(tmp_path, deciding(CLEAR), Trained(1, means={1: -2.0}, learning=PLATEAU))
    assert words(judged_claims(results)) == {"1 beats 2": "not learnt"}
    assert store.decisions()[-1].word == "not learnt"


def test_claims_that_were_changed_after_the_study_are_judged_anew(tmp_path: Path):
    results, _, _ = results_of(tmp_path, deciding(CLEAR), Trained(1, means={1: -2.0}))
    changed = [
        results.claim_specs[0].model_copy(
            update={"first": {"training.loops": 2}, "second": {"training.loops": 1}}
        )
    ]
    (judged,) = judged_claims(results, changed)
    assert judged.word == "does not hold"
    assert judged.decision is None


class Falling(Trained):
    """Workers whose errors fall until the last step."""

    @override
    def error_at(self, job: Job, step: int) -> float:
        return 0.1 + 0.3 / step


def test_an_open_claim_says_that_its_nets_are_still_falling(tmp_path: Path):
    results, _, _ = results_of(tmp_path, deciding(SAME, until={"futile": 0.4}), Falling(1))
    (judged,) = judged_claims(results)
    runs = len(judged.sides.runs)
    assert (
        f"{runs} of {runs} runs are still falling, so longer training may decide"
        in claim_question(results, judged).because
    )
