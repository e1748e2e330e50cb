"""Every benchmark still runs with the package of today."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))

# One process imports torch and the package, and each benchmark runs in a fork of this process. A fork has modules of
# its own, because benchmarks import one another by their names. --help comes after all imports.
ASK_ALL = """
import contextlib, io, json, os, runpy, sys, traceback
import loopscale.studies.spec

def ask(benchmark, write):
    sys.argv, sys.path[0] = [benchmark, "--help"], os.path.dirname(benchmark)
    out, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(benchmark, run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        code = traceback.format_exc()
    with os.fdopen(write, "w") as pipe:
        json.dump([code, out.getvalue()], pipe)

answers = {}
for benchmark in sys.argv[1:]:
    read, write = os.pipe()
    if not os.fork():
        ask(benchmark, write)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answers[benchmark] = pipe.read()
    os.wait()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", ASK_ALL, *BENCHMARKS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_imports_what_it_uses_and_explains_itself(benchmark: Path, answers: dict[str, str]):
    code, printed = json.loads(answers[str(benchmark)])
    assert code == 0, code
    if "argparse" in benchmark.read_text():
        assert "usage" in printed
