"""Whether this machine can give a trial what the study asks for: Ray would wait for it without a word, for ever."""

import os

import torch

from loopscale.studies.parts import Resources


class Lacking(RuntimeError):
    """The machine has not got what one trial is to have."""


def check(resources: Resources, address: str | None) -> None:
    """Raises Lacking. A cluster at an address is not asked: it may grow."""
    if address:
        return
    cpus, gpus = len(os.sched_getaffinity(0)), torch.cuda.device_count()
    if resources.gpu > gpus:
        raise Lacking(
            f"a trial is to have {resources.gpu:g} of a GPU and this machine has {gpus or 'none'}; "
            "give the --address of a cluster that has, or train on the CPU with --set resources.gpu=0"
        )
    if resources.cpu > cpus:
        raise Lacking(
            f"a trial is to have {resources.cpu:g} CPUs and this machine has {cpus}; "
            f"give the --address of a larger one, or --set resources.cpu={cpus}"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if resources.memory and resources.memory > memory:
        raise Lacking(
            f"a trial is to have {resources.memory:g} GiB of memory and this machine has {memory:.3g}; "
            f"give the --address of a larger one, or a smaller resources.memory"
        )


def here_fit(resources: Resources) -> int:
    """As many trials as have a CPU of this machine for themselves, of those that this process may use."""
    return max(1, int(len(os.sched_getaffinity(0)) / resources.cpu))
