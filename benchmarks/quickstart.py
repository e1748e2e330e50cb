"""Processor time of a whole study, the quickstart, by this code and by an earlier commit.

    python benchmarks/quickstart.py --against v0.1.0 [--rounds 2] [--json]

Both sides run `loopscale run studies/quickstart.yaml` of their own commit in turns, each in a new store. The files may
differ in their claims and laws alone, because these cost no training. The time is that of the driver, of Ray and of the
workers. A process that lives for less than a fifth of a second is not seen.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from earlier_code import code_at
from machine import describe
from processes import processor_times

PROJECT = Path(__file__).parent.parent
QUESTIONS = ("question", "source", "claims", "laws")
"""Parts of a study file that change no trial."""


def trained_parts(code: Path) -> dict[str, Any]:
    """The parts of the quickstart's file that decide its trials."""
    study = yaml.safe_load((code / "studies" / "quickstart.yaml").read_text())
    return {name: part for name, part in study.items() if name not in QUESTIONS}


def run_study(code: Path) -> dict[str, float]:
    """Seconds of the study by the code in a folder: elapsed, of processor, and the part of the workers."""
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-c", "import sys; from loopscale.cli.main import main; sys.exit(main())"]
        command += ["run", str(code / "studies" / "quickstart.yaml"), "--store", store]
        environment = os.environ | {"PYTHONPATH": str(code / "src"), "OMP_NUM_THREADS": "1"}
        began, seen = time.perf_counter(), dict[int, tuple[str, float]]()
        side = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while side.poll() is None:
            seen |= processor_times(side.pid)
            time.sleep(0.2)
        if side.returncode:
            raise SystemExit(f"the study ended with exit code {side.returncode}")
    workers = sum(seconds for name, seconds in seen.values() if name.startswith("ray::"))
    processor = sum(seconds for _, seconds in seen.values())
    return {"elapsed": time.perf_counter() - began, "processor": processor, "workers": workers}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="COMMIT", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = describe()
    rows: dict[str, list[dict[str, float]]] = {"ours": [], "earlier": []}
    with code_at(options.against) as earlier:
        assert earlier
        if trained_parts(PROJECT) != trained_parts(earlier):
            raise SystemExit("the two commits have different quickstarts: no comparison")
        for _ in range(options.rounds):
            for side, code in (("ours", PROJECT), ("earlier", earlier)):
                rows[side].append(run_study(code))
    ratios = [
        ours["processor"] / other["processor"]
        for ours, other in zip(rows["ours"], rows["earlier"], strict=True)
    ]
    if options.json:
        print(json.dumps({"machine": machine.to_dict(), "rounds": rows, "ratios": ratios}, indent=1))
        return
    print(machine)
    print(f"{'side':8}{'elapsed s':>11}{'processor s':>13}{'of workers':>12}")
    for side, results in rows.items():
        for row in results:
            print(f"{side:8}{row['elapsed']:11.0f}{row['processor']:13.1f}{row['workers']:12.1f}")
    print("ours / earlier, processor: " + ", ".join(f"{ratio:.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
