"""Studies of looped transformers that learn algorithms.

    import loopscale

    study = loopscale.Study.parse({"question": "...", "fixed": {...}, ...}, "mine")
    loopscale.plan(study)                    # the cost, and the chances of the verdicts
    loopscale.run(study, "records")          # an interrupt loses nothing; the same call goes on
    loopscale.results("mine", "records").best()
    loopscale.query("SELECT label, error FROM trials", "records")

The names below are imported at their first use, so `import loopscale` is quick. All errors that a person can mend are
below `loopscale.errors.LoopscaleError`.
"""

import warnings
from importlib import import_module
from typing import Any

__version__ = "0.2.0"
_MODULES = {
    "Callback": "loopscale.runner.callbacks",
    "LivePage": "loopscale.live.driver_page",
    "RunSummary": "loopscale.interface.running",
    "Store": "loopscale.records.stores.base",
    "Study": "loopscale.studies.spec",
    "StudyResults": "loopscale.analysis.notebook",
    "best": "loopscale.interface.answers",
    "compare": "loopscale.interface.comparing",
    "open_store": "loopscale.records.stores.opening",
    "plan": "loopscale.interface.planning",
    "progress_display": "loopscale.runner.progress",
    "query": "loopscale.interface.queries",
    "report": "loopscale.interface.reports",
    "results": "loopscale.interface.queries",
    "run": "loopscale.interface.running",
    "simulate": "loopscale.interface.simulating",
}
"""The module of each public name. `__init__.pyi` declares the names for editors and type checkers."""
__all__ = ["__version__", "errors", *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]: the stub has the names

# Optuna and MLflow import tqdm. In a notebook tqdm asks for a package that draws bars. loopscale draws its own bar.
warnings.filterwarnings("ignore", message="IProgress not found")


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("loopscale.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
