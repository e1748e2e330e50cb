"""A driver that enters a session, tells about it on standard output, and leaves the session at the end of its input."""

import json
import os
import sys

import ray

from loopscale.runner.on_ray.session import ray_session

with ray_session(1, None, lambda _: os._exit(9)):
    node = ray._private.worker._global_node
    about = {
        "address": ray.get_runtime_context().gcs_address,
        "folder": node.get_session_dir_path(),
        "token": os.environ["RAY_AUTH_TOKEN"],
        "processes": {kind: each[0].process.pid for kind, each in node.all_processes.items()},
    }
    assert ray.get(ray.remote(lambda: "worker").remote()) == "worker"
    print(json.dumps(about), flush=True)
    sys.stdin.read()
