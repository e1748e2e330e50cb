"""A cluster of seven hosts in namespaces, with real servers, for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Network
from tests.cluster.servers import KEYS, Cluster

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(PYTHONPATH=str(FOLDER / "slow"), **KEYS) as network:
        yield network


@pytest.fixture(scope="module")
def cluster(network: Network) -> Cluster:
    return Cluster(network)
