"""What bounds and constructions have in common: a system of the theory, and a source in the bibliography."""

import sys
from abc import abstractmethod
from typing import ClassVar

from loopscale.core.bibliography import spell_citations
from loopscale.core.config import Family

SYSTEMS = (
    "AlgoFormer",
    "linear regression",
    "deep optimizers",
    "decision making",
    "mixtures of regressions",
    "clustering",
    "spectral methods",
    "sparse recovery",
)
"""The systems of the theory, in the order of their presentation."""
OTHER = "other systems"
"""The system of a module without the constant SYSTEM, as in a plugin."""


class Statement(Family):
    """A theorem, or a derived fact. The constant SYSTEM of its module names its system."""

    source: ClassVar[str]
    """The reference and the number of the theorem, or "derived" if no reference prints the statement."""

    @classmethod
    def system(cls) -> str:
        """One of `SYSTEMS`, or `OTHER`."""
        return getattr(sys.modules[cls.__module__], "SYSTEM", OTHER)

    @classmethod
    @abstractmethod
    def claimed(cls) -> str:
        """The kind of claim as a symbol, and its limits in words."""

    @classmethod
    @abstractmethod
    def subject(cls) -> str:
        """The quantity or the algorithm that the statement is about."""

    @classmethod
    def spelled_source(cls) -> str:
        """The source for readers."""
        return spell_citations(cls.source)
