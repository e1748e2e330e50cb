"""The hosts that a study holds: gangs, hosts that come and go, the tail, and idle hosts."""

import pytest

from loopscale.foresight.held_hosts import CellWork, HostGroup, held_hosts, schedule

HOUR = 3600.0
FIVE = [CellWork(5, HOUR, 0, 0.0)]


def test_a_worker_takes_the_next_trial_as_soon_as_it_is_free():
    assert schedule(FIVE, 2) == [3 * HOUR, 2 * HOUR]
    assert schedule(FIVE, 8) == [HOUR] * 5 + [0.0] * 3


def test_replicates_wait_for_the_tuning_of_their_cell():
    assert max(schedule([CellWork(4, 60, 2, 100)], 4)) == 160
    assert max(schedule([CellWork(0, 60, 2, 100)], 4)) == 100
    two_cells = [CellWork(1, 10, 1, 100), CellWork(3, 10, 0, 0)]
    assert max(schedule(two_cells, 2)) == 110, "replicates go before the tuning of other cells"


def test_a_gang_is_held_to_the_end_of_the_tail():
    held = held_hosts([HostGroup(2, 8, 1, 1, least=2)], FIVE, FIVE, workers=2, start=0)
    assert held
    assert (held.hosts, held.hours, held.core_hours, held.gpu_hours) == (2, (3, 3), (48, 48), (6, 6))


def test_a_host_that_comes_and_goes_is_held_until_it_is_idle():
    groups = [HostGroup(1, 2, 0, 0, least=1), HostGroup(4, 8, 1, 1, least=0, idle_seconds=HOUR / 2)]
    held = held_hosts(groups, FIVE, FIVE, workers=2, start=0)
    assert held
    assert held.hosts == 3, "the driver's host and two of four"
    assert held.core_hours[1] == pytest.approx(3 * 2 + 8 * (3 + 2.5))
    outlives = [HostGroup(2, 8, 1, 1, least=0, idle_seconds=HOUR / 2, outlives=True)]
    held = held_hosts(outlives, FIVE, FIVE, workers=2, start=0)
    assert held
    assert held.core_hours[1] == pytest.approx(8 * (3.5 + 2.5)), "idle time after the study counts there"


def test_the_span_of_the_points_becomes_a_span_of_hours():
    dear = [CellWork(5, 2 * HOUR, 0, 0.0)]
    held = held_hosts([HostGroup(1, 2, 0, 2, least=1)], FIVE, dear, workers=2, start=0)
    assert held
    assert held.core_hours == (6, 12)


def test_hosts_that_run_anyway_are_not_held():
    assert held_hosts([HostGroup(2, 8, 1, 1, least=2, started=False)], FIVE, FIVE, 2, 0) is None
