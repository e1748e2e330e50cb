"""An elastic study on a Slurm of hosts in namespaces: its cluster file, worker jobs, and checks of its records."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from loopscale.cluster.base import ENDED, Request, Submission
from loopscale.cluster.package import build_package
from loopscale.cluster.slurm import Slurm
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from tests.cluster.hosts import until
from tests.cluster.servers import KEYS
from tests.cluster.slurm_hosts import Site

EVERY = 20
STUDY = """\
question: Does an elastic study survive?
source: nowhere
fixed:
  task: {{kind: linear_regression, dim: 2, points: 4}}
  model: {{kind: looped, width: 8, heads: 1}}
  training: {{steps: {steps}, batch_size: 4, window: 1, eval_every: {every}}}
scientific:
  training.loops: [1, 2]
replicates: {replicates}
evaluate: {{loops: 2, prompts: 16}}
"""
LEAVES = "leaves Ray: its time is over, or it is not needed"
RAY_ENDED = "Ray has ended"
"""At its limit, Slurm may end the Ray of a worker job before the job itself leaves."""
JOINS = ": joins Ray at"


def elastic_cluster(there: Site, quick: bool = True, **more: object) -> Slurm:
    """A cluster file for the hosts of the site. With `quick`, Ray notices within seconds that a host is dead.

    While the file `shared/slow` exists, disks are slow. The file `shared/most-HOST` holds a number of checkpoints.
    After so many saves on that host, a trial waits in its save until the file is gone.
    """
    root = there.network.root
    keys = [
        f"export {name}={value}" for name, value in KEYS.items() if quick and name.startswith("RAY_health")
    ]
    setup = [
        f"export PYTHONPATH={Path(__file__).parent}/slow OMP_NUM_THREADS=1 SLURM_CONF={there.conf}",
        f"export SLOW_DISK={root}/shared/slow TRACE_SAVES={root}/traces/$(hostname)",
        f"export MOST_SAVES={root}/shared/most-$(hostname)",
        *keys,
    ]
    settings = {"folder": f"{root}/shared/it is shared", "python": sys.executable, "setup": setup}
    settings |= {
        "mode": "elastic",
        "nodes": 3,
        "cpus_per_task": 1,
        "partition": "work",
        "time_limit": "30 min",
    }
    settings |= {"driver": {"cpus": 1, "memory_gib": None, "partition": "driver"}, "idle_seconds": 15}
    return Slurm.model_validate(settings | more)


@dataclass
class ElasticStudy:
    """A study that runs on the site, and what a person sees of it."""

    there: Site
    folder: Path
    """For the package of the study."""
    steps: int = 400
    replicates: int = 3
    """Trials of each of two cells."""
    nodes: int = 3
    quick: bool = True
    """Whether Ray notices within seconds that a host is dead. Many hosts of one machine are too slow for that."""

    def __post_init__(self) -> None:
        self.cluster = elastic_cluster(self.there, self.quick, nodes=self.nodes)

    def request(self) -> Request:
        text = STUDY.format(steps=self.steps, every=EVERY, replicates=self.replicates)
        package = build_package("deep/tiny", text)
        return Request("deep/tiny", text, {}, package.write(self.folder), package.digest, {"cpu": 1.0})

    def submit(self) -> None:
        self.made = self.cluster.submit("there", self.request())

    def saves(self, host: str = "*") -> Counter[tuple[str, int]]:
        """The number of checkpoints of each step of each trial, saved on a host or on all."""
        files = (self.there.network.root / "traces").glob(host)
        lines = [line for file in files for line in file.read_text().splitlines()]
        return Counter((line.split()[0], int(line.split()[1])) for line in lines)

    def workers(self) -> dict[str, str]:
        """The worker job that runs on each host, such as 2_7. A bare number could mean a whole array."""
        running = [job for job in self.there.jobs() if job[2] == "RUNNING" and "worker" in job[1]]
        return {host: number for number, _, _, host in running}

    def runs(self, condition: object) -> bool:
        """Whether the condition holds. AssertionError if the study has ended."""
        assert not (end := self.ended()), f"{end}\n{self.log()}"
        return bool(condition)

    def ended(self) -> Submission | None:
        found = next(each for each in self.cluster.submissions("there") if each.id == self.made.id)
        return found if found.state in ENDED else None

    def log(self) -> str:
        """The output of the driver's job and of all worker jobs."""
        folder = Path(self.cluster.folder)
        files = [folder / f"logs/{self.made.id}.log", *sorted((folder / "jobs" / self.made.id).glob("*.log"))]
        return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in files if file.exists())

    def check_end(self, seconds: float) -> str:
        """Wait for the end. Check that all is complete and exact, and that no job is left. Returns the log.

        Every trial is finished, no step is missing or recorded twice, and a host that leaves repeats little work.
        """
        end = until(self.ended, seconds, "the study has ended")
        assert end.state == "succeeded", self.log()
        until(lambda: not self.there.jobs(), 100, "no worker job is left")
        text = self.log()
        store = open_store(Path(self.cluster.folder) / "records")
        records = list(recorded_trials(store, "deep/tiny"))
        assert [record.outcome for record in records] == ["finished"] * 2 * self.replicates
        wanted = list(range(EVERY, self.steps + 1, EVERY))
        for record in records:
            steps = [point.step for point in store.client.get_metric_history(record.run, "error")]
            assert steps == wanted, "each step is recorded once"
        assert sorted({step for _, step in self.saves()}) == wanted
        assert self.repeated() <= text.count(JOINS), "a host that leaves repeats at most one interval"
        assert not list(Path(self.cluster.folder).glob("jobs/*/token"))
        return text

    def repeated(self) -> int:
        """Checkpoint intervals that were trained more than once."""
        return sum(times - 1 for times in self.saves().values())
