"""Claims of a study with `until: decided`: readers give the words of the decisions, from a store and from an export."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from loopscale.analysis.answers.best_cells import best, best_columns
from loopscale.analysis.answers.claims import JudgedClaim, claim_notes, judged_claims
from loopscale.analysis.answers.findings import claim_question, study_findings
from loopscale.analysis.answers.standings import standings
from loopscale.analysis.laws.law import study_laws
from loopscale.analysis.recorded.load import load_results
from loopscale.analysis.recorded.looks import decisions_of, order_sentences
from loopscale.analysis.recorded.results import Results
from loopscale.records.model import STUDY, STUDY_JSON, Note
from loopscale.records.stores.base import Store as RealStore
from loopscale.records.stores.opening import open_store
from loopscale.records.transfer import export_records, import_records
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.job import Job
from loopscale.studies.spec import Study, cell_counts
from loopscale.training.trial import Trial
from tests.runner.decide.test_until import (
    CLEAR,
    LAW,
    LEARNT,
    PLATEAU,
    SAME,
    Sometimes,
    Trained,
    claim,
    deciding,
    falling,
    steps,
)
from tests.runner.decide.test_until_steps import Longer, said
from tests.runner.decide.test_until_values import FEW, reserving
from tests.runner.decide.test_until_values import falling as falling_far
from tests.runner.simulated_study import Store, complete, resumed


def recorded_in(place: Path, made: Study, store: Store) -> RealStore:
    """A real store with the notes of a simulated study."""
    real = open_store(place, create=True)
    document = json.dumps(made.document() | {"plan": cell_counts(made)}).encode()
    with MlflowWriter(real, made.name, {}) as writer:
        for note in [Note(STUDY, artifacts=((STUDY_JSON, document),)), *store.notes]:
            writer.write(note)
        assert writer.flush(600)  # a loaded machine takes minutes
    return real


def words(claims: tuple[JudgedClaim, ...]) -> dict[str, str]:
    return {each.text: each.verdict for each in claims}


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
    claim(1, {"solver": "least_squares"}, text="all cells") | {"first": {}, "over": ["training.loops"]},
]


@pytest.mark.slow
@pytest.mark.parametrize("margin", [None, 0.3])
def test_readers_of_a_store_and_of_an_export_give_the_words_of_the_decisions(
    tmp_path: Path, margin: float | None
):
    made = deciding(*({**each, "margin": margin} for each in CLAIMS))
    results, store, real = results_of(tmp_path, made, Trained(2, means={1: -1.0, 2: -0.1}))
    decided = {each.text: each.verdict for each in store.decisions()}
    assert len(decided) == len(CLAIMS)
    assert len(set(decided.values())) > 1
    assert words(judged_claims(results)) == decided
    export_records(real, made.name, tmp_path / "export")
    imported = open_store(tmp_path / "imported", create=True)
    import_records(imported, tmp_path / "export")
    for place in (open_store(tmp_path / "export"), imported):
        read = load_results(place, made.name)
        assert words(judged_claims(read)) == decided
        assert repr(decisions_of(read)) == repr(decisions_of(results))


@pytest.mark.slow
def test_readers_give_the_words_of_the_decisions_on_claims_over_pairs(tmp_path: Path):
    pair = {"first": {"training.loops": 1}, "second": {"training.loops": 4}, "of": "error", "margin": None}
    made = deciding(
        {"text": "all heads", "over": ["model.heads"], **pair},
        {"text": "one head", **pair, "first": pair["first"] | {"model.heads": 1}}
        | {"second": pair["second"] | {"model.heads": 1}},
        scientific={"training.loops": [1, 4], "model.heads": [1, 2]},
    )
    results, store, _ = results_of(tmp_path, made, Trained(2, means={1: -0.3}, sd=0.4))
    decided = {each.text: each.verdict for each in store.decisions()}
    assert words(judged_claims(results)) == decided
    of_claim = {each.text: each for each in store.decisions()}
    assert len(of_claim["all heads"].cells) == 4
    assert of_claim["all heads"].seeds <= of_claim["one head"].seeds


@pytest.mark.slow
def test_the_interval_of_a_claim_has_the_level_of_the_look(tmp_path: Path):
    results, store, _ = results_of(tmp_path, deciding(SAME), Trained(1))
    (judged,) = judged_claims(results)
    last = store.decisions()[-1]
    assert judged.interval is not None
    assert (judged.interval.low, judged.interval.high) == pytest.approx((last.low, last.high), rel=1e-6)
    assert judged.sides.contrast is not None
    assert judged.interval.low < judged.sides.contrast.ratio()[1]
    assert "at all looks together (3, 5, 8, 12, 18, 27 replicates)" in claim_notes([judged])[0]


@pytest.mark.slow
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
    assert store.decisions()[-1].verdict == "not learnt"


@pytest.mark.slow
def test_claims_on_nets_that_do_not_always_learn_have_the_same_words_everywhere(tmp_path: Path):
    made = deciding(
        CLEAR,
        SAME,
        claim(1, {"solver": "least_squares"}, of="error"),
        claim(4, 4, text="more loops") | {"first": {"training.loops": 4, "loop": 8}},
        claim(2, 8),
        until={"looks": [3, 5, 8]},
    )
    stuck = {1: (2, 5), 4: (1,), 8: range(1, 40)}
    results, store, _ = results_of(tmp_path, made, Sometimes(1, means={1: -2.0}, stuck=stuck))
    decided = {each.text: each for each in store.decisions()}
    judged = {each.text: each for each in judged_claims(results)}
    assert {text: each.verdict for text, each in judged.items()} == {
        text: each.verdict for text, each in decided.items()
    }
    assert judged["1 beats 2"].verdict_in_words == "holds among learnt runs"
    tables = {answer.label: answer.against_best for answer in best(results)}
    assert (beside := tables["loops=2"])
    assert beside.reversed.verdict_in_words == "better among learnt runs"
    assert beside.reversed.interval == pytest.approx(judged["1 beats 2"].interval)
    of_cell = {each.baseline: each.comparison for each in standings(results) if each.label == "loops=1"}
    (of_algorithm,) = (each for text, each in judged.items() if "least" in text)
    assert of_cell["least squares"].interval == of_algorithm.interval
    plain = judged["1 beats 2"].to_dict()
    assert (plain["verdict"], plain["among_learnt_runs"]) == ("holds", True), "programs compare single words"
    assert judged["4 beats 8"].verdict in ("not learnt", "learns more often")
    assert decided["1 beats 2"].learnt == "2 of 3 and 3 of 3"
    last = decided["2 beats 8"]  # later looks of other claims train no cell of this claim
    assert judged["2 beats 8"].learnt_in_words == last.learnt
    assert f"Runs that have learnt: {last.learnt}" in judged["2 beats 8"].remarks


def test_claims_that_were_changed_after_the_study_are_judged_anew(tmp_path: Path):
    results, _, _ = results_of(tmp_path, deciding(CLEAR), Trained(1, means={1: -2.0}))
    changed = [
        results.claim_specs[0].model_copy(
            update={"first": {"training.loops": 2}, "second": {"training.loops": 1}}
        )
    ]
    (judged,) = judged_claims(results, changed)
    assert judged.verdict == "does not hold"
    assert judged.decision is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("rate", "sd"), [(0.95, 0.1), (1.3, 0.6)])
def test_readers_give_the_words_of_the_decisions_on_laws(tmp_path: Path, rate: float, sd: float):
    made = deciding(SAME, laws=[LAW], until={"looks": [3, 5, 27], "futile": 0.7})
    results, store, _ = results_of(tmp_path, made, Trained(2, means=falling(rate), sd=sd))
    (law,), unfitted = study_laws(results)
    last = [each for each in store.decisions() if each.kind == "law"][-1]
    assert not unfitted
    assert law.judgement
    assert law.judgement.verdict == last.verdict
    assert (law.rate, law.low, law.high) == pytest.approx((last.estimate, last.low, last.high), rel=1e-6)
    assert set(law.runs) == {last.seeds}
    if last.step == "futile":
        assert law.judgement.because == last.why_futile
    assert {each.text for each in judged_claims(results) if each.decision} == {SAME["text"]}


class Falling(Trained):
    """Workers whose errors fall until the last step."""

    @override
    def error_at(self, job: Job, step: int) -> float:
        return 0.1 + 0.3 / step


@pytest.mark.slow
def test_an_open_claim_says_that_its_nets_are_still_falling(tmp_path: Path):
    results, _, _ = results_of(tmp_path, deciding(SAME, until={"futile": 0.4}), Falling(1))
    (judged,) = judged_claims(results)
    runs = len(judged.sides.runs)
    assert (
        f"{runs} of {runs} runs are still falling, so longer training may decide"
        in claim_question(results, judged).because
    )


@pytest.mark.slow
def test_only_the_longest_trainings_answer_and_readers_name_the_verdicts_on_the_shorter_ones(tmp_path: Path):
    made = deciding(CLEAR, SAME, until={"steps": 2})
    workers = Longer(2, means={1: -2.0, 4: -2.0}, only=(1,))
    results, _, real = results_of(tmp_path, made, workers)
    export_records(real, made.name, tmp_path / "export")
    for read in (results, load_results(open_store(tmp_path / "export"), made.name)):
        steps_of = {
            cell.label: ({run.step for run in cell.runs}, len(cell.runs), len(cell.others))
            for cell in read.cells
        }
        assert steps_of == {
            "loops=1": ({180}, 3, 3),
            "loops=2": ({180}, 3, 3),
            "loops=4": ({90}, 3, 0),
            "loops=8": ({90}, 3, 0),
        }
        first, second = judged_claims(read)
        assert (first.verdict, second.verdict) == ("holds", "holds")
        assert first.sides.notes == ("Its nets were trained again for 180 steps",)
        assert second.sides.notes == ()
        sentences = list(order_sentences(read))
        assert sentences == [
            "The looks ordered 6 trainings of 2 times the steps for 1 question with too few learnt runs.",
            "After 3 replicates per 90 steps, `until.steps` ordered trainings of twice the steps for 2 cells, because "
            "nets of “1 beats 2” stood on the plateau. Only the longer trainings answer.",
            "Verdict per 90 steps: 1 beats 2: not learnt.",
        ]
        assert set(sentences) <= set(study_findings(read).sentences)
        best_settings = {row.label: row.settings["training.steps"] for row in best(read)}
        assert best_settings == {"loops=1": 180, "loops=2": 180, "loops=4": 90, "loops=8": 90}
        assert "training.steps" in [column.heading for column in best_columns(read)]


def test_the_shorter_trainings_answer_until_every_cell_of_the_order_has_a_longer_one(tmp_path: Path):
    made, store = deciding(CLEAR, until={"steps": 2}), Store()
    workers = Longer(1, means={1: -2.0}, only=(1,))
    longer = set[str]()
    while len(longer) < 2:  # the driver dies after a few reports until two longer trainings have finished
        workers.drive(resumed(made, store), 10)
        finished = [record for record in store.records() if record.outcome == "finished"]
        longer = {record.key for record in finished if record.steps_factor == 2}
    cells = {record.cell for record in store.records() if record.key in longer}
    results = load_results(recorded_in(tmp_path / "store", made, store), made.name)
    factors = {cell.steps_factor for cell in results.cells}
    assert factors == ({1, 2} if len(cells) == 2 else {1})
    assert any("under way" in text for text in order_sentences(results)) == (len(cells) < 2)


@pytest.mark.slow
def test_a_verdict_on_shorter_trainings_does_not_stand_for_the_longer_ones(tmp_path: Path):
    """The claim on the cells 2 and 4 holds per 90 steps. Its cells are trained again for another claim."""

    class Changing(Longer):
        @override
        def log_error(self, work: Trial) -> float:
            return super().log_error(work) * (
                1 if work.training.steps > 90 or work.training.loops == 1 else 20
            )

    made = deciding(CLEAR, claim(2, 4, margin=None), until={"steps": 2, "looks": [3], "futile": 0.0})
    workers = Changing(1, means={1: -2.0, 4: 0.3}, only=(1,), sd=0.05)
    results, store, _ = results_of(tmp_path, made, workers)
    assert ("2 beats 4", 1, 3, "holds", "decided") in said(store)
    last = {each.text: each.verdict for each in store.decisions()}
    assert last["2 beats 4"] == "undecided"
    assert words(judged_claims(results)) == last


@pytest.mark.slow
def test_a_law_on_longer_trainings_names_their_steps(tmp_path: Path):
    made = deciding(laws=[LAW], until={"steps": 2})
    workers = Longer(1, means=falling(1.0), sd=0.02, learning=LEARNT, only=(8,))
    results, store, _ = results_of(tmp_path, made, workers)
    laws, _ = study_laws(results)
    assert store.decisions()[-1].verdict == laws[0].judgement.verdict == "agrees"
    assert "per 180 steps" in laws[0].note


@pytest.mark.slow
def test_readers_judge_a_law_by_its_values_in_reserve_as_soon_as_these_have_a_look(tmp_path: Path):
    results, store, _ = results_of(
        tmp_path, reserving(until=FEW), Trained(1, means=falling_far(1.08), sd=0.2)
    )
    last = store.decisions()[-1]
    ((law,), _) = study_laws(results)
    assert law.x == (1, 2, 4, 8, 16, 32)
    assert law.judgement
    assert (law.judgement.verdict, law.rate) == (last.verdict, pytest.approx(last.estimate))
    assert "2 cells in reserve with 6 replicates for 1 open law" in " ".join(order_sentences(results))


def test_a_law_that_needs_no_reserve_is_judged_without_it_and_its_cells_stay_untrained(tmp_path: Path):
    results, store, _ = results_of(tmp_path, reserving(), Trained(1, means=falling_far(1.0), sd=0.02))
    ((law,), _) = study_laws(results)
    assert law.x == (1, 2, 4, 8)
    assert law.judgement
    assert law.judgement.verdict == store.decisions()[-1].verdict == "agrees"
    states = {answer.label: answer.state for answer in best(results)}
    assert states["loops=16"] == states["loops=32"] == "in reserve"
