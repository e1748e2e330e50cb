"""A study on several hosts ends complete after every fault: the same trials and errors, and nothing is trained twice.

Ray, PostgreSQL, MLflow and S3 are real processes on their own hosts. Only the bucket holds checkpoints.
"""

from functools import partial

import pytest

from tests.cluster import faults
from tests.cluster.faults import Stage
from tests.cluster.servers import Cluster
from tests.cluster.soak import Soak
from tests.cluster.studies import Study

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def whole(cluster: Cluster) -> Study:
    """The undisturbed study."""
    study = Study(cluster, "whole")
    study.finish(study.drive())
    study.check(repeatable=0)
    assert study.repeated() == 0
    return study


def survives(study: Study, whole: Study, *strikes: faults.Fault) -> Study:
    """Complete the study through faults that strike after some checkpoints, and compare it with the whole one."""
    try:
        stage = Stage(study, study.drive())
        for strike in strikes:
            study.until_saved(3, stage.driver)
            stage.strike(strike)
        study.finish(stage.driver)
        study.check(stage.repeatable)
        assert study.ends() == whole.ends()
    except BaseException:
        print(study.cluster.network.logs())
        raise
    return study


def total(study: Study, tag: str) -> int:
    return sum(int(count) for count in study.tags(tag).values())


@pytest.mark.long
def test_a_killed_worker_is_replaced_and_counted(cluster: Cluster, whole: Study):
    study = survives(Study(cluster, "worker"), whole, faults.worker_killed)
    assert (total(study, "retries"), total(study, "lost_hosts")) == (1, 0)


@pytest.mark.long
def test_a_lost_host_is_not_the_trials_fault(cluster: Cluster, whole: Study):
    study = survives(Study(cluster, "host"), whole, faults.host_killed)
    assert (total(study, "retries"), total(study, "lost_hosts")) == (0, 1)


@pytest.mark.long
def test_a_returning_host_doubles_nothing(cluster: Cluster, whole: Study):
    study = survives(Study(cluster, "cut"), whole, faults.host_cut_off)
    assert (total(study, "retries"), total(study, "lost_hosts")) == (0, 1)


@pytest.mark.long
def test_a_killed_driver_can_be_run_again(cluster: Cluster, whole: Study):
    study = survives(Study(cluster, "driver"), whole, faults.driver_killed)
    before = study.saves()
    study.finish(study.drive())
    assert study.saves() == before, "an ended trial is not trained again"


@pytest.mark.long
def test_the_study_goes_on_under_a_new_head(cluster: Cluster, whole: Study):
    survives(Study(cluster, "head"), whole, faults.head_killed)


@pytest.mark.long
def test_tracking_server_and_database_may_be_away(cluster: Cluster, whole: Study):
    away = partial(faults.tracking_away, seconds=120)
    survives(Study(cluster, "records"), whole, away, faults.database_restarted)


@pytest.mark.long
def test_unsent_records_of_a_dead_driver_are_recorded_later(cluster: Cluster, whole: Study):
    survives(Study(cluster, "unheard"), whole, faults.driver_killed_unheard, faults.driver_killed_half_heard)


@pytest.mark.long
def test_a_full_disk_stops_its_host_and_not_the_study(cluster: Cluster, whole: Study):
    survives(Study(cluster, "full"), whole, faults.disk_full)


@pytest.mark.long
def test_slow_disks_and_a_slow_link_cost_time_only(cluster: Cluster, whole: Study):
    shared = str(cluster.network.root / "shared/slowly")  # as NFS would be: all hosts see it
    study = survives(Study(cluster, "slow", storage=shared), whole, faults.disk_slow)
    assert study.repeated() == 0


@pytest.mark.long
def test_a_damaged_checkpoint_and_a_damaged_mirror_lose_no_record(cluster: Cluster, whole: Study):
    survives(Study(cluster, "damaged"), whole, faults.checkpoint_truncated, faults.mirror_damaged)


@pytest.mark.long
def test_a_full_storage_and_a_database_that_fails_over_cost_time_only(cluster: Cluster, whole: Study):
    survives(Study(cluster, "storage"), whole, faults.storage_full, faults.database_failed_over)


@pytest.mark.long
def test_a_process_that_stands_still_changes_no_result(cluster: Cluster, whole: Study):
    survives(Study(cluster, "stopped"), whole, faults.process_stopped)


@pytest.mark.long
def test_clocks_that_are_an_hour_wrong_change_no_result(cluster: Cluster, whole: Study):
    def every_clock(stage: Stage) -> None:
        """The training hosts are an hour fast, and the head an hour slow, for three checkpoints."""
        hosts = [(ray.host, 3600) for ray in stage.cluster.workers] + [(stage.cluster.head.host, -3600)]
        for host, shift in hosts:
            host.move_clock(shift)
        try:
            stage.study.until_saved(3, stage.driver)
        finally:
            for host, _ in hosts:
                host.move_clock(0)

    survives(Study(cluster, "clock"), whole, every_clock)


def test_five_random_faults_leave_a_longer_study_whole(cluster: Cluster):
    """`make soak` strikes a hundred and more."""
    soak = Soak(cluster, seed=5)
    soak.run(faults=5)
    assert len(soak.struck) == 5
