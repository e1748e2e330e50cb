"""The contract of every kind of cluster. A new file in `loopscale/cluster` is tested here, without a cluster."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from loopscale.cluster.base import Cluster, ClusterError, Request, trials_on
from loopscale.cluster.former_names import Former
from loopscale.contracts.members import under_test

Answer = TypeVar("Answer")
EVERY_CLUSTER = pytest.mark.parametrize("kind", under_test(Cluster).values(), ids=lambda kind: kind.kind)
NAME, PASSWORD = "here", "tr0ub4dor"
WITH_PASSWORD = {"store": f"postgresql://me:{PASSWORD}@db/x"}
ORDER = Request(
    "algoformer/figure3",
    "question: Is it so?\n",
    {"training.steps": "10", "notes": "it's $(id)"},
    digest="0123456789abcdef",
    resources={"cpu": 2.0, "gpu": 0.0, "memory": 1.0},
    rate=2e12,
)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without programs of clusters, and without studies."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for variable in ("LOOPSCALE_STORE", "LOOPSCALE_CLUSTER", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)


def made(kind: type[Cluster], **settings: object) -> Cluster:
    return kind.model_validate({**kind.example, **settings})


def answered(ask: Callable[[], Answer]) -> Answer | str:
    """The answer of a cluster, or the text of its error: one line with a remedy."""
    try:
        return ask()
    except ClusterError as problem:
        said = str(problem)
    what, _, remedy = said.partition("; ")
    assert what
    assert remedy
    assert "\n" not in said
    return said


@EVERY_CLUSTER
def test_the_example_is_valid_and_survives_a_round_trip(kind: type[Cluster]):
    cluster = made(kind)
    assert Cluster.model_validate(cluster.model_dump(exclude_unset=True)) == cluster
    assert Cluster.model_validate({"kind": kind.kind, **kind.example}) == cluster


@EVERY_CLUSTER
def test_the_command_of_the_driver_has_every_setting_once(kind: type[Cluster]):
    cluster = made(kind, store="http://tracking:5000", storage="s3://bucket/x", workers=3, weight=2.0)
    words = cluster.command(ORDER)
    pairs = list(pairwise(words))
    for option, value in (
        ("--store", "http://tracking:5000"),
        ("--storage", "s3://bucket/x"),
        ("--workers", "3"),
    ):
        assert [second for first, second in pairs if first == option] == [value]
    assert [float(second) for first, second in pairs if first == "--rate"] == [ORDER.rate]
    changes = [second for first, second in pairs if first == "--set"]
    assert changes == [f"{path}={value}" for path, value in ORDER.overrides.items()]
    assert ORDER.file in words


@EVERY_CLUSTER
def test_no_command_and_no_text_shows_the_password_of_the_store(kind: type[Cluster]):
    cluster = made(kind, **WITH_PASSWORD)
    assert PASSWORD in cluster.secrets.values()
    assert PASSWORD not in " ".join(cluster.command(ORDER))
    assert PASSWORD not in answered(lambda: cluster.render(NAME, ORDER))


@EVERY_CLUSTER
def test_equal_settings_give_an_equal_text(kind: type[Cluster]):
    texts = [answered(lambda: made(kind).render(NAME, ORDER)) for _ in range(2)]
    assert texts[0] == texts[1]


@EVERY_CLUSTER
def test_hosts_have_no_negative_numbers_and_take_a_trial(kind: type[Cluster]):
    hosts = answered(lambda: made(kind).hosts(NAME, ORDER.resources))
    if not isinstance(hosts, str):
        assert all(min(group.count, group.slots, group.cpus, group.gpus) >= 0 for group in hosts)
        assert trials_on(hosts) >= 1


@EVERY_CLUSTER
def test_former_names_lead_to_present_settings(kind: type[Cluster]):
    former: dict[str, Former] = getattr(kind, "former_names", {})
    assert {each.name for each in former.values()} <= kind.model_fields.keys()
    assert not former.keys() & kind.model_fields.keys()


@pytest.mark.slow
@EVERY_CLUSTER
def test_a_cluster_that_does_not_answer_is_one_line_with_a_remedy(kind: type[Cluster]):
    cluster = made(kind)
    assert NAME in cluster.no_submissions(NAME)
    assert "\n" not in cluster.no_submissions(NAME)
    submissions = answered(lambda: cluster.submissions(NAME))
    assert isinstance(submissions, str) or submissions == []
