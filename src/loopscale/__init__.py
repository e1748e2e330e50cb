"""Studies of looped transformers on in-context learning tasks."""

import warnings

__version__ = "0.1.0"

# Optuna and MLflow bring tqdm, which in a notebook asks for one more package to draw bars with that nobody here draws.
warnings.filterwarnings("ignore", message="IProgress not found")
