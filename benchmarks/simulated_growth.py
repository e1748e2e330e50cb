"""What `loopscale simulate` takes for large studies on 1,000 GPUs: processor time and memory by the number of trials.

    python benchmarks/simulated_growth.py [--trials 1000 10000 100000] [--json]

The study has random search, asha and one GPU a trial, in 50 to 500 cells. Every row is a new process. The time of the
process holds its start, the plan of the study and the whole schedule. The goals for 100,000 trials are ten minutes and
4 GiB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from machine import describe
from recorded_study import study_file

GPUS = 1000
REPLICATES = 2
"""Trials of a cell after its search, as in the study."""


@dataclass(frozen=True)
class Row:
    trials: int
    processor_seconds: float
    elapsed_seconds: float
    peak_mib: float
    simulated_trials: int
    """Trials that the schedule has ended."""


def measure(trials: int, folder: Path) -> Row:
    cells = max(50, min(500, trials // 20))
    file = study_file(folder, cells, tuning=trials // cells - REPLICATES, more="resources: {gpu: 1}\n")
    command = [sys.executable, "-m", "loopscale", "simulate", str(file), "--gpus", str(GPUS), "--json"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"simulate has ended with {process.returncode}")
    elapsed = time.perf_counter() - began
    processor = used.ru_utime + used.ru_stime
    return Row(trials, processor, elapsed, used.ru_maxrss / 1024, json.loads(answer)["trials"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(trials, Path(folder)) for trials in options.trials]
    if options.json:
        print(json.dumps({"machine": describe().to_dict(), "rows": [asdict(row) for row in rows]}, indent=2))
        return
    print(describe())
    print(f"{'trials':>8} {'ended':>8} {'processor':>10} {'elapsed':>10} {'peak MiB':>9}")
    for row in rows:
        print(
            f"{row.trials:8} {row.simulated_trials:8} {row.processor_seconds:10.1f} "
            f"{row.elapsed_seconds:10.1f} {row.peak_mib:9.0f}"
        )


if __name__ == "__main__":
    main()
