"""Fourier series in context, and a gated linear recurrent net. The imports register the members."""

from loopscale_fourier.model import GatedRnn
from loopscale_fourier.task import Fourier

__all__ = ["Fourier", "GatedRnn"]
