"""How many modules a study crosses from its YAML to the verdict of a law."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MOST_MODULES = 40
STUDY = """
question: Does the error fall with the pairs seen?
fixed:
  task: {kind: linear_regression, dim: 2, points: 8}
  model: {width: 16, heads: 2}
  training: {steps: 4, batch_size: 8, loops: 2, window: 1, eval_every: 2}
scientific:
  model: [{kind: looped}, {kind: gpt2, layers: 2}]
nuisance:
  training.lr: {real: [1e-3, 5e-3], scale: log}
search: {kind: tpe, trials: 1}
scheduler: {kind: asha, first_rung: 2, reduction: 2}
replicates: 3
evaluate: {loops: 4, prompts: 16}
baselines: [least_squares]
laws:
  - {of: excess, along: point, form: [power, exponential], theory: one_step_best}
"""
TRACE = """
import inspect, json, sys, threading

ROOMS = ("cli", "studies", "runner", "records", "analysis", "stats")
entered, verdicts = set(), []

def enter(frame, event, argument):
    code, module = frame.f_code, frame.f_globals.get("__name__")
    if event != "call" or verdicts or not isinstance(module, str) or not module.startswith("loopscale."):
        return
    room = module.split(".")[1]
    written = code.co_flags & inspect.CO_OPTIMIZED and code.co_filename != "<string>"
    if room in ROOMS and written and not code.co_qualname.startswith("<"):
        entered.add(module)
        if code.co_name == "compare_rates":
            verdicts.append(module)

threading.setprofile(enter)
sys.setprofile(enter)
from loopscale.cli.main import main

sys.argv = ["loopscale", "run", "study.yaml", "--store", "store"]
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
print(json.dumps([verdicts, sorted(entered)]))
"""


def test_a_study_crosses_at_most_forty_modules_from_its_file_to_the_verdict_of_a_law(tmp_path: Path):
    """The driver of `loopscale run` is traced until the first law is compared with its bound (`compare_rates`).

    A module counts if one of the functions in its file is entered, in any thread of the driver. Two things run at the
    import alone and do not count: functions that `dataclass` writes, and expressions outside of functions. Modules of
    six rooms count: cli, studies, runner, records, analysis and stats. The study has no claims, no held-out cells, no
    `until` and no law of `emerged_at`, so the modules of these features must not count.
    """
    (tmp_path / "study.yaml").write_text(STUDY)
    traced = subprocess.run(
        [sys.executable, "-P", "-c", TRACE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    verdicts, entered = json.loads(traced.stdout.splitlines()[-1])
    assert verdicts, f"no law has a verdict: {traced.stderr[-2000:]}"
    assert len(entered) <= MOST_MODULES, "\n".join(entered)
    features = (
        "until",
        "held_out",
        "claims",
        "predictions",
        "decisions",
        "emergence",
        "plan",
        "power",
        "room",
    )
    assert not [module for module in entered if module.rpartition(".")[2] in features]
