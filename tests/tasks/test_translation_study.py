"""A study of translation from its file to its report, and a kill between."""

import subprocess
import sys
from pathlib import Path

import pytest

import loopscale
from loopscale.analysis.notebook import results
from loopscale.analysis.recorded.load import find_results

pytestmark = pytest.mark.slow

STUDY = """
question: Does a small decoder learn number words?
fixed:
  task: {kind: translation}
  model: {kind: gpt2, layers: 2, width: 32, heads: 4, init_std: 0.1}
  training: {steps: 300, batch_size: 32, lr: 5e-3, optimizer: muon, eval_every: 50}
scientific:
  model.tied: [false, true]
replicates: 1
evaluate: {loops: 2, prompts: 128}
baselines: [word_translation]
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translation")
    (folder / "words.yaml").write_text(STUDY)
    summary = loopscale.run(folder / "words.yaml", folder / "records", [], workers=2)
    assert summary.outcomes == {"finished": 2}
    assert summary.baselines == {"finished": 1}
    return folder / "records"


def test_the_nets_translate_and_read_their_sources(records: Path):
    for trial in find_results("words", records).trained:
        assert trial["raw_error"] < 1
        assert trial["other_source"] > 1
        assert trial["bleu"] > 40
        assert {"chrf", "bleu_beam", "nats_per_character", "bleu_sem"} <= trial.measures.keys()


def test_a_notebook_shows_the_examples_of_a_cell(records: Path):
    study = results("words", records)
    cell = study.cells[0]
    shown = study.examples(cell.label)
    assert list(shown.index) == [example["given"] for example in cell.runs[0].examples]
    assert list(shown.columns) == ["answer", "wanted"]


def test_records_an_export_and_the_report_have_examples(records: Path, tmp_path: Path):
    (run, *_) = find_results("words", records).trained
    assert len(run.examples) == 5
    commands = [
        ["report", "words", "--store", str(records), "--out", str(tmp_path / "report.html")],
        ["export", "words", "--store", str(records), "--to", str(tmp_path / "exported")],
    ]
    for command in commands:
        subprocess.run([sys.executable, "-m", "loopscale.cli.main", *command], check=True)
    page = (tmp_path / "report.html").read_text()
    best = min(find_results("words", records).trained, key=lambda trial: trial["error"])
    assert all(example[name] in page for example in best.examples for name in ("given", "answer", "wanted"))
    again = {trial.trial: trial.examples for trial in find_results("words", tmp_path / "exported").trained}
    assert again[run.trial] == run.examples
