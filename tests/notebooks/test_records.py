"""The committed records of trained nets, compared with the least possible error and with predicting nothing."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from loopscale.analysis.answers.impossible import impossible_results
from loopscale.analysis.notebook import StudyResults, results
from loopscale.analysis.recorded.references import task_of
from loopscale.regret import floor
from loopscale.stats.learning import History, learning_state, pooled_scatter

FOLDER = Path(__file__).parents[2] / "notebooks"
RECORDS = sorted(path.parent for path in (FOLDER / "data").glob("*/export.json"))
every_study = pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)


def recorded(folder: Path) -> StudyResults:
    (study,) = pd.read_parquet(folder / "studies.parquet")["study"]
    return results(study, folder)


@pytest.mark.slow
@every_study
def test_no_trained_net_is_better_than_the_best_possible_predictor(folder: Path):
    study = recorded(folder)
    assert study.missing == ""
    assert impossible_results(study) == []


@pytest.mark.slow
@every_study
def test_some_net_of_every_study_is_far_better_than_predicting_nothing(folder: Path):
    """By the interval over replicates, if there is one."""
    best = recorded(folder).best()
    assert (best["error_high"].fillna(best["error"]) < 0.9).any()


# Reports of the replicates by state: no room, not learnt, falling, over, unclear.
COUNTED_ELSEWHERE = {
    "clustering_broken": (0, 0, 45, 15, 0),
    "clustering_spectral": (0, 0, 13, 5, 110),
    "decisions_distillation": (0, 0, 0, 12, 0),
    "decisions_dpt": (0, 0, 12, 0, 9),
    "decisions_mdp": (0, 0, 12, 0, 0),
    "figure2a": (0, 0, 9, 0, 0),
    "figure2b": (0, 0, 12, 0, 0),
    "figure2c": (0, 6, 3, 0, 0),
    "figure3": (0, 0, 13, 1, 4),
    "figure4": (0, 0, 24, 0, 24),
    "figure5": (0, 0, 18, 0, 0),
    "mixture_models": (0, 0, 16, 0, 10),
    "pca_attention": (0, 0, 48, 0, 0),
    "pca_loops": (0, 6, 36, 0, 0),
    "pca_tables": (0, 0, 18, 0, 0),
    "quickstart": (0, 0, 15, 0, 0),
    "scaling_compute": (0, 2, 36, 0, 10),
    "scaling_conditioning": (0, 0, 58, 0, 2),
    "scaling_loop_rates": (0, 13, 22, 9, 0),
    "scaling_loops": (0, 0, 29, 1, 0),
    "scaling_loops_models": (0, 0, 18, 0, 0),
    "scaling_prompts": (0, 8, 31, 2, 13),
    "sparse_layers": (0, 2, 35, 0, 8),
    "sparse_matrices": (0, 11, 25, 0, 0),
    "sparse_noise": (0, 0, 30, 2, 10),
}
"""Counts by an independent program."""
COUNTED_HERE = {
    "clustering_snr": (0, 0, 41, 15, 12),
    "clustering_tables": (6, 0, 14, 3, 19),
    "decisions_architectures": (0, 0, 12, 0, 0),
    "decisions_context": (6, 0, 5, 0, 1),
    "decisions_depth": (0, 0, 12, 0, 0),
    "decisions_heads": (0, 0, 35, 0, 3),
    "decisions_mismatch": (0, 0, 8, 4, 0),
    "decisions_prompts": (0, 0, 0, 12, 0),
    "equal_layers": (0, 0, 11, 4, 0),
    "four_heads": (0, 0, 9, 0, 0),
    "leaving_descent": (0, 0, 2, 6, 4),
    "mixture_length": (27, 1, 25, 0, 54),
    "mixture_prompts": (0, 0, 7, 5, 3),
    "networks_depth": (0, 0, 24, 0, 4),
    "networks_loops": (0, 3, 12, 0, 0),
    "networks_mixture": (0, 0, 11, 0, 1),
    "networks_started": (0, 9, 4, 3, 0),
    "noise": (0, 0, 18, 0, 0),
    "scaling_dimension": (0, 4, 80, 0, 0),
    "second_order_along_training": (0, 0, 12, 0, 0),
    "second_order_conditioned": (0, 0, 21, 0, 0),
    "second_order_isotropic": (0, 1, 8, 0, 0),
    "sparse_varying": (0, 6, 0, 0, 15),
    "training_initial_weights": (0, 27, 73, 0, 0),
    "training_optimisers": (0, 47, 241, 3, 9),
    "translation_numbers": (0, 0, 0, 0, 25),
}
"""Counts by this package when the records came, without an independent program: another rule is noticed. The German
sentences are absent, because their floor needs the corpus."""
LEARNT = COUNTED_ELSEWHERE | COUNTED_HERE
OTHER_FLOORS = {"clustering_broken", "clustering_snr", "clustering_tables"}
"""The bound of separable clusters is 0 here, and below 0 in that program. A few endings are therefore less clear."""


def test_every_record_has_its_count():
    assert {folder.name for folder in RECORDS} - LEARNT.keys() == {"translation_reduced_german_english"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LEARNT))
def test_the_recorded_trainings_have_the_counted_states(name: str):
    study, histories = recorded(FOLDER / "data" / name), list[History]()
    levels = dict[str, tuple[float, float]]()  # by task: some studies have more tasks than `floor` remembers
    for trial in study.trained:
        if trial.role == "replicate" and trial.outcome == "finished":
            steps, error = trial.history("error")
            task = task_of(trial.settings)
            if (posed := task.model_dump_json()) not in levels:
                known = floor(task)
                levels[posed] = float(known.error.mean()), float(known.ignorance.mean())
            histories.append(History(steps.astype(float), error, *levels[posed]))
    scatter = pooled_scatter(histories)
    words = Counter(learning_state(history, scatter).stage for history in histories)
    found = tuple(words[word] for word in ("no room", "not learnt", "falling", "over", "unclear"))
    expected = LEARNT[name]
    assert found[:2] == expected[:2]
    assert sum(found) == sum(expected)
    assert found == expected or name in OTHER_FLOORS


def test_the_records_are_small():
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*")) < 30e6
