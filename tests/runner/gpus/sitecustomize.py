"""On PYTHONPATH of tests with GPUs that are not there: all is real up to the first CUDA call of a trial.

A worker that begins a trial writes a line with its process and its devices to $GPU_TRACE. While the file $HOLD exists,
the trial waits there. Then the trial trains on the CPU. The file $NO_GPU names hosts where torch itself answers, and
sees no GPU. In a driver, torch counts $TORCH_COUNT GPUs, and the library of NVIDIA counts $NVML_COUNT GPUs. Saves are
traced as in the kill tests.
Python imports this file at its start. The file itself does not import torch.
"""

import os
import runpy
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

AfterImport = runpy.run_path(str(Path(__file__).parents[1] / "tracing/sitecustomize.py"))["AfterImport"]


def write(what: str, key: str) -> None:
    """Write a line of a trial on this worker: event, key, process, node and devices."""
    import ray  # the worker has imported Ray

    node = ray.get_runtime_context().get_node_id()
    words = (what, key, os.getpid(), node, os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    with open(os.environ["GPU_TRACE"], "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def pretend_gpu(device) -> None:
    pick = device.pick

    def pick_cpu(gpu="auto"):
        if gpu == "auto" or not gpu:
            return pick(gpu)
        with suppress(OSError):
            if socket.gethostname() in Path(os.environ["NO_GPU"]).read_text().split():
                return pick(gpu)
        return "cpu"

    device.pick = pick_cpu


def trace_trials(worker) -> None:
    work = worker.work

    def traced_work(order):
        write("begin", order.key)
        while os.path.exists(os.environ["HOLD"]):
            time.sleep(0.05)
        try:
            yield from work(order)
        finally:
            write("end", order.key)

    worker.work = traced_work


def count_in_torch(cuda) -> None:
    cuda.device_count = lambda: int(os.environ["TORCH_COUNT"])


def count_in_nvml(nvml) -> None:
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: int(os.environ["NVML_COUNT"])
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetName = lambda handle: "NVIDIA H100 that is not there"


if "GPU_TRACE" in os.environ:
    sys.meta_path.insert(0, AfterImport("loopscale.training.device", pretend_gpu))
    sys.meta_path.insert(0, AfterImport("loopscale.runner.on_ray.worker", trace_trials))
if "TORCH_COUNT" in os.environ:
    sys.meta_path.insert(0, AfterImport("torch.cuda", count_in_torch))
    sys.meta_path.insert(0, AfterImport("ray._private.thirdparty.pynvml", count_in_nvml))
