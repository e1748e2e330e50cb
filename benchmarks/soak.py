"""Random faults of every kind on a cluster of hosts in network namespaces. Prints each fault, and a table of all.

    python benchmarks/soak.py --faults 100

Needs root, iproute2 and PostgreSQL. It measures recovery, not speed.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import describe
from tests.cluster.faults import FAULTS
from tests.cluster.hosts import Network
from tests.cluster.servers import KEYS, Cluster
from tests.cluster.soak import Soak

SLOW = Path(__file__).parents[1] / "tests/cluster/slow"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100, help="the least number of faults")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="strike no fault after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=sorted(FAULTS), choices=FAULTS, metavar="KIND")
    asked = parser.parse_args()
    print(describe(), flush=True)
    began = time.monotonic()
    with Network(PYTHONPATH=str(SLOW), **KEYS) as network:
        soak = Soak(Cluster(network), asked.seed, lambda line: print(line, flush=True), asked.only)
        try:
            soak.run(asked.faults, asked.minutes * 60)
        except BaseException:
            print(network.logs(4000))
            raise
        finally:
            print(soak.table())
    minutes = (time.monotonic() - began) / 60
    print(
        f"\n{len(soak.struck)} faults, {len(soak.studies)} studies, {minutes:.0f} minutes, seed {asked.seed}"
    )


if __name__ == "__main__":
    main()
