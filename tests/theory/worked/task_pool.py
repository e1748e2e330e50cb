"""Finite pools of tasks."""

SETTING = {"dim": 8, "point": 16, "noise": 0.5}

# The catalogue also has simulated means over pools, and for `dmmse` only slopes: see test_task_pool.py.
WORKED = [
    ("lsa_task_pool", SETTING | {"measured_on": "new"}, "2.9307"),
    ("lsa_task_pool", SETTING | {"measured_on": "pool"}, "2.9307"),
    ("lsa_task_pool_mp", SETTING | {"measured_on": "new", "tasks": 10**9}, "2.9307"),
    ("lsa_task_pool_mp", SETTING | {"measured_on": "pool", "tasks": 10**9}, "2.9307"),
    ("dmmse", {"dim": 8, "tasks": 1}, "16.00000"),
    ("dmmse", {"dim": 2, "tasks": 2}, "2.267949"),  # 4 - sqrt(3)
    ("dmmse", {"dim": 8, "measured_on": "pool"}, "0"),
]
