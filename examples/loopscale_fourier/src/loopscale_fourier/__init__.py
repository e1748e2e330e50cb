"""Fourier series in context, a gated linear recurrent net, and a periodic kernel. The imports register the members."""

from loopscale_fourier.model import GatedRnn
from loopscale_fourier.solver import PeriodicKernel
from loopscale_fourier.task import Fourier

__all__ = ["Fourier", "GatedRnn", "PeriodicKernel"]
