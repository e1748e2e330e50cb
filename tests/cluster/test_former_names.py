"""Settings of cluster files have their units in their names, and the former names stay readable."""

from pathlib import Path

import pytest

from loopscale.cluster.base import Cluster
from loopscale.cluster.files import load_cluster
from loopscale.notation.mistakes import Mistakes

SLURM = "kind: slurm\nmode: elastic\nfolder: /shared\n"
KUBERAY = "kind: kuberay\nimage: an/image\nstorage: s3://a/b\nstore: http://c:1\n"
LAUNCHER = "kind: launcher\nprovider: {type: aws, region: eu-west-1}\nssh_user: me\nstorage: s3://a/b\nstore: http://c:1\n"
NODE = "machine: m, cpu: 4"


def read(folder: Path, text: str) -> Cluster:
    (folder / "lab.yaml").write_text(text)
    return load_cluster(str(folder / "lab.yaml"))[1]


@pytest.mark.parametrize(
    ("common", "former", "present"),
    [
        (SLURM, "mem: 32G\ntime: '12:00:00'\nidle: 60", "memory_gib: 32\ntime_limit: 12 h\nidle_seconds: 60"),
        (SLURM, "mem: 512\ntime: 2-00:00:00", "memory_gib: 0.5\ntime_limit: 2 d"),
        (SLURM, "mem:", "memory_gib:"),
        (SLURM, "driver: {mem: 2G, time: '01:30:00'}", "driver: {memory_gib: 2, time_limit: 90 min}"),
        (
            KUBERAY,
            "head: {memory: 3}\nidle: 60\nkeep: 5\nactive_deadline: 90\nstart_deadline: 80\nkeep_on_failure: 9",
            "head: {memory_gib: 3}\nidle_seconds: 60\nkeep_seconds: 5\nactive_deadline_seconds: 90\n"
            "start_deadline_seconds: 80\nkeep_on_failure_seconds: 9",
        ),
        (
            LAUNCHER,
            f"head: {{{NODE}, disk: 50}}\nworker: {{{NODE}}}",
            f"head: {{{NODE}, disk_gb: 50}}\nworker: {{{NODE}}}",
        ),
    ],
)
def test_a_former_name_means_what_the_present_name_means(
    tmp_path: Path, common: str, former: str, present: str
):
    assert read(tmp_path, common + former) == read(tmp_path, common + present)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mem: 32G\nmemory_gib: 32", "lab.yaml:4: mem is the former name of memory_gib; write one of them"),
        ("partition: a\nmem: lots", "lab.yaml:5: 'lots' is no memory; write memory_gib: 64"),
        ("driver:\n  mem: lots", "lab.yaml:5: 'lots' is no memory; write memory_gib: 64"),
        (
            "partition: a\ntime: soon",
            "lab.yaml:5: time_limit: 'soon' is no time limit; write 12 h, 90 min or 2 d, or",
        ),
        ("idle: soon", "lab.yaml:4: idle_seconds is 'soon'"),
        ("time_limit: 12 hours", "lab.yaml:4: time_limit: '12 hours' is no time limit; write 12 h,"),
    ],
)
def test_a_mistake_stands_at_the_line_of_the_name_that_was_written(tmp_path: Path, text: str, said: str):
    with pytest.raises(Mistakes) as caught:
        read(tmp_path, SLURM + text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("common", "text", "said"),
    [
        (SLURM, "grows: 1", "lab.yaml:4: grows is 1, not true or false; write grows: true"),
        (SLURM, "requeue: 0.0", "lab.yaml:4: requeue is 0.0, not true or false; write requeue: false"),
        (SLURM, "memory_gib: true", "lab.yaml:4: memory_gib is True"),
        (SLURM, "workers: true", "lab.yaml:4: workers is True, not a number; write workers: 1"),
        (
            LAUNCHER,
            f"head: {{{NODE}, spot: 1}}\nworker: {{{NODE}}}",
            "lab.yaml:6: head.spot is 1, not true or false; write spot: true",
        ),
    ],
)
def test_a_truth_value_is_no_number_and_a_number_is_no_truth_value(
    tmp_path: Path, common: str, text: str, said: str
):
    with pytest.raises(Mistakes) as caught:
        read(tmp_path, common + text)
    assert said in str(caught.value)
