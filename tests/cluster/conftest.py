"""A cluster of hosts for the tests of a module: seven namespaces, and everything real in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Network
from tests.cluster.servers import KEYS, Cluster

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(PYTHONPATH=str(HERE / "slow"), **KEYS) as network:
        yield network


@pytest.fixture(scope="module")
def cluster(network: Network) -> Cluster:
    return Cluster(network)
