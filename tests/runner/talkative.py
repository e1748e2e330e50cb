"""The text of a plugin: a task that prints, and that waits while the file `wait` lies beside the plugin."""

TALKATIVE = '''"""Linear regression that says what it does, and waits for a file."""

import os
import time
from pathlib import Path

import ray
from loopscale.tasks.linear_regression import LinearRegression

HERE = Path(__file__).parent


class Talkative(LinearRegression, kind="talkative"):
    """Linear regression that talks."""

    def sample(self, *words, **options):
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id():  # a worker, not the driver
            print(f"samples in process {os.getpid()}", flush=True)
            while (HERE / "wait").exists():
                time.sleep(0.05)
        return super().sample(*words, **options)
'''
