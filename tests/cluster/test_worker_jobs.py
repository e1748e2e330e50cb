"""The decisions about worker jobs: how many start, and which leave."""

from pathlib import Path

from loopscale.cluster.worker_jobs import FAILED_STARTS, Queue, RayState, WorkerJobs, read_queue


def queue(*lines: str) -> Queue:
    return Queue.parse(lines)


RUNNING = [f"job|1_{n}|{10 + n}|RUNNING|w{n}" for n in (1, 2)]


def test_as_many_jobs_start_as_waiting_trials_need():
    assert WorkerJobs(8, 2, 60).decide(queue(), RayState({}, 5), 0) == ["start 3"]
    assert WorkerJobs(2, 2, 60).decide(queue(), RayState({}, 5), 0) == ["start 2"], "at most two"
    assert WorkerJobs(8, 2, 60).decide(queue(), RayState({}, 0), 0) == []


def test_jobs_that_wait_or_join_and_free_places_count():
    jobs = WorkerJobs(8, 2, 60)
    waiting = queue("job|1_1|1|PENDING|", RUNNING[0])
    assert jobs.decide(waiting, RayState({}, 4), 0) == []
    assert jobs.decide(waiting, RayState({}, 5), 0) == ["start 1"]
    assert jobs.decide(queue(*RUNNING), RayState({"11": 1, "12": 2}, 1), 0) == [], "a place is free on 11"
    assert jobs.decide(queue(*RUNNING), RayState({"11": 2, "12": 2}, 1), 0) == ["start 1"]


def test_an_idle_job_leaves_after_a_while_and_a_waiting_job_is_removed():
    jobs = WorkerJobs(8, 1, idle_seconds=60)
    now = queue(RUNNING[0], RUNNING[1], "job|1_3|9|PENDING|")
    state = RayState({"11": 1, "12": 0}, 0)
    assert jobs.decide(now, state, 0) == []
    assert jobs.decide(now, state, 59) == []
    assert jobs.decide(now, state, 61) == ["leave 1_2", "cancel 1_3"]
    assert jobs.decide(now, state, 70) == [], "each job is told once"
    busy = WorkerJobs(8, 1, idle_seconds=60)
    busy.decide(now, state, 0)
    busy.decide(now, RayState({"11": 1, "12": 1}, 0), 50)
    assert busy.decide(now, state, 61) == ["cancel 1_3"], "the time of 12 begins anew"


def test_a_job_leaves_a_drained_host_and_another_job_takes_its_place():
    jobs = WorkerJobs(8, 1, 60)
    state = RayState({"11": 1, "12": 1}, 0)
    assert jobs.decide(queue(*RUNNING, "drained|w2", "drained|w7"), state, 0) == ["leave 1_2"]
    assert jobs.decide(queue(*RUNNING, "drained|w2"), RayState({"11": 1}, 1), 1) == ["start 1"]


def test_the_job_of_a_dead_host_is_cancelled_and_replaced():
    jobs = WorkerJobs(2, 1, 60)
    jobs.decide(queue(*RUNNING), RayState({"11": 1, "12": 1}, 0), 0)
    assert jobs.decide(queue(*RUNNING), RayState({"11": 1}, 1), 1) == ["cancel 1_2", "start 1"]
    gone = queue(RUNNING[0], "job|1_2|12|COMPLETING|w2")
    assert len(gone.jobs) == 1, "a job that ends holds no place"


def test_jobs_that_end_before_they_join_stop_the_study():
    jobs = WorkerJobs(8, 1, 60)
    for n in range(FAILED_STARTS):
        jobs.decide(queue(f"job|{n}|{n}|RUNNING|w1"), RayState({}, 1), 2 * n)
        said = jobs.decide(queue(), RayState({}, 1), 2 * n + 1)
    assert said == [
        f"problem {FAILED_STARTS} worker jobs ended before they joined Ray; see their logs worker-*.log"
    ]
    jobs = WorkerJobs(8, 1, 60)
    for n in range(2 * FAILED_STARTS):
        jobs.decide(queue(f"job|{n}|{n}|RUNNING|w1"), RayState({str(n): 1} if n % 2 else {}, 1), 2 * n)
        assert jobs.decide(queue(), RayState({}, 1), 2 * n + 1) == ["start 1"], "some of them have joined"


def test_the_queue_of_a_look_is_read_when_the_shell_has_written_it(tmp_path: Path):
    file = tmp_path / "queue"
    file.write_text("look 3\n" + "\n".join([*RUNNING, "drained|w9", ""]))
    found = read_queue(file, 3)
    assert [(job.id, job.number, job.host) for job in found.jobs] == [
        ("1_1", "11", "w1"),
        ("1_2", "12", "w2"),
    ]
    assert found.drained == {"w9"}
