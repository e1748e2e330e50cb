"""Processor time and memory to read a large study back: `query`, `list`, `best` and `report`.

    python benchmarks/reading.py --trials 1000 10000 --against v0.1.0
    python benchmarks/reading.py --trials 100000 --only query best --keep /data/large

The records come from `recorded_study.py`. Every command is a new process and runs on the same store. The sides are this
code, with --against this project's code at another commit, and `mlflow.search_runs` of all runs into a pandas table.
The sides take turns. A warm query finds its copy of the records up to date, a cold query finds none. Answers of the
sides must be equal.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from earlier_code import code_at

STUDY = "large"
TRIALS = "SELECT label, avg(error), count(*) FROM trials WHERE role = 'replicate' GROUP BY ALL ORDER BY ALL"
CURVES = (
    "SELECT loop, point, round(avg(curves.error), 9), count(*) FROM curves JOIN trials USING (trial)"
    " WHERE role = 'replicate' GROUP BY ALL ORDER BY ALL"
)
COMMANDS = {
    "query, cold": ["query", TRIALS, "--json"],
    "query": ["query", TRIALS, "--json"],
    "query of curves": ["query", CURVES, "--json"],
    "list": ["list", "--json"],
    "best": ["best", STUDY, "--json"],
    "report": ["report", STUDY, "--out"],
}
SEARCH = """
import sys, mlflow
mlflow.set_tracking_uri("sqlite:///" + sys.argv[1])
print(len(mlflow.search_runs(experiment_names=[sys.argv[2]], max_results=1_000_000)))
"""
ONCE = ("query, cold", "report")
"""Commands that change the store or the copy of the records."""


@dataclass(frozen=True)
class Use:
    """The resources of one process: processor seconds of user and system, and MiB at the peak."""

    seconds: float
    mib: float
    code: int
    answer: bytes

    def __str__(self) -> str:
        failure = "" if self.code == 0 else f" (code {self.code})"
        return f"{self.seconds:.2f} s, {self.mib:,.0f} MiB{failure}"


def measure(arguments: list[str], source: Path, limit: float) -> Use:
    """Run Python with these arguments and the package below `source`. After `limit` seconds the process is killed."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, env=environment)
        timer = threading.Timer(limit, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return Use(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, process.returncode, out.read())


def side_by_side(
    folder: Path, sources: dict[str, Path], options: argparse.Namespace
) -> dict[str, dict[str, Use]]:
    """The medians of every command on every side, by command and side."""
    uses: dict[str, dict[str, Use]] = {}
    for command, words in COMMANDS.items():
        if options.only and command not in options.only:
            continue
        uses[command] = {}
        rounds: dict[str, list[Use]] = {side: [] for side in sources}
        for _ in range(1 if command in ONCE else options.repeat):
            for side, source in sources.items():
                storage = folder / f"storage of {side}"
                if command == "query, cold":
                    shutil.rmtree(storage / "mirror", ignore_errors=True)
                page = [str(folder / f"{side}.html")] if command == "report" else []
                place = ["--store", str(folder / "store"), "--storage", str(storage)]
                arguments = ["-m", "loopscale.cli.main", *words, *page, *place]
                rounds[side].append(measure(arguments, source, options.limit))
        for side, of_side in rounds.items():
            uses[command][side] = sorted(of_side, key=lambda use: use.seconds)[len(of_side) // 2]
            print(f"  {command:16} {side:12} {uses[command][side]}", flush=True)
        if command != "report" and len({use.answer for use in uses[command].values()}) > 1:
            print(f"  {command:16} the answers of the sides differ", flush=True)
    return uses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--against", metavar="COMMIT", help="also measure the code of this commit")
    parser.add_argument("--only", nargs="+", choices=[*COMMANDS, "mlflow"], help="only these commands")
    parser.add_argument("--repeat", type=int, default=3, help="runs of a command; the table shows the median")
    parser.add_argument("--limit", type=float, default=900, help="seconds until a command is killed")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the stores here, and use kept stores"
    )
    options = parser.parse_args()
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="reading-") as temporary, code_at(options.against) as earlier:
        sources = {"this code": here.parent / "src"} | ({options.against: earlier / "src"} if earlier else {})
        for trials in options.trials:
            folder = (options.keep or Path(temporary)) / str(trials)
            if not folder.exists():
                maker = [str(here / "recorded_study.py"), str(folder), "--trials", str(trials)]
                subprocess.run([sys.executable, *maker], check=True, stdout=subprocess.DEVNULL)
            print(f"{trials:,} trials", flush=True)
            side_by_side(folder, sources, options)
            if not options.only or "mlflow" in options.only:
                search = ["-c", SEARCH, str(folder / "store" / "mlflow.db"), STUDY]
                print(
                    f"  mlflow.search_runs to pandas  {measure(search, sources['this code'], options.limit)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
