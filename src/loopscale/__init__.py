"""Studies of looped transformers on in-context learning tasks."""

__version__ = "0.1.0"
