"""The floors of a study's tasks, read without torch where possible.

The file `floors.json` in the folder of a store, or of an export, holds the floors that somebody has computed. An
unknown floor is computed on the prompts of the records, which needs torch, and the file then keeps the floor. The floor
of a task takes .01 to 2 seconds, and of `mixture_em` up to 20.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from loopscale.core.files import make_private, read_regular
from loopscale.core.output_files import write_output
from loopscale.core.plugins import MissingPlugin
from loopscale.core.prompt_sets import Purpose
from loopscale.errors import CorpusError
from loopscale.records.stores.base import Store
from loopscale.records.stores.exported import require_file
from loopscale.stats.learning import How, MeanFloor

FLOORS_FILE = "floors.json"
VERSION = 1
"""Raised when the floors of recorded tasks change. Saved floors of another version are not used."""
Entry = dict[str, Any]
SUM = "sum"
"""The key of an entry's checksum, which tells a floor that somebody has changed from a computed floor."""


class Floors:
    """The floors of tasks on their sets of prompts."""

    def __init__(self, file: Path | None = None, keep: Path | None = None, compute: bool = True) -> None:
        """Read the saved floors.

        Parameters
        ----------
        file
            The file of saved floors.
        keep
            The file that keeps computed floors. None keeps them in memory.
        compute
            Whether an unknown floor is computed.
        """
        self.keep, self.compute = keep, compute
        self._entries = _read(file) if file else {}
        self._floors = dict[str, MeanFloor | None]()

    @classmethod
    def of(cls, store: Store | None, compute: bool = True) -> "Floors":
        """The floors of a store. Without a store every floor is computed."""
        if store is None:
            return cls(compute=compute)
        file = (Path(store.uri) if store.read_only else store.storage) / FLOORS_FILE
        return cls(file, None if store.read_only else file, compute)

    def floor(self, task: Mapping[str, Any], purpose: Purpose, prompts: int) -> MeanFloor | None:
        """The floor of a task on a set of prompts; None if the floor is unknown and must not be computed.

        Parameters
        ----------
        task
            The settings of the task by name, without prefix.
        """
        key = floor_key(task, purpose, prompts)
        if key not in self._floors:
            entry = self._entries.get(key) or (
                self._computed(key, task, purpose, prompts) if self.compute else None
            )
            self._floors[key] = None if entry is None else _mean_floor(entry)
        return self._floors[key]

    def _computed(self, key: str, task: Mapping[str, Any], purpose: Purpose, prompts: int) -> Entry | None:
        if (mean := computed_floor(task, purpose, prompts)) is None:
            return None
        entry = saved_form(mean, task, purpose, prompts)
        self._entries[key] = entry
        if self.keep:
            save_floors(self.keep, {key: entry})
        return entry

    def saved(self) -> Iterator[tuple[Entry, MeanFloor]]:
        """Every saved form, which names task and prompts, with its floor."""
        return ((entry, _mean_floor(entry)) for entry in self._entries.values())

    def known(self, keys: Iterable[str]) -> dict[str, Entry]:
        """The saved form of the floors with these keys."""
        return {key: self._entries[key] for key in keys if key in self._entries}


def computed_floor(task: Mapping[str, Any], purpose: Purpose, prompts: int) -> MeanFloor | None:
    """The floor, computed now; None if this machine cannot compute the floor."""
    # Imported here because both packages import torch, which recorded floors do without.
    from loopscale.regret import floor
    from loopscale.tasks.base import Task

    try:
        return floor(Task.model_validate(dict(task)), purpose, prompts).mean
    except (ValueError, MissingPlugin):  # settings of another version
        return None
    except CorpusError:  # the corpus lies on another machine
        return None


def floor_key(task: Mapping[str, Any], purpose: Purpose, prompts: int) -> str:
    """The key of a floor: 16 hexadecimal digits of the hash of the task's settings and the set of prompts."""
    text = json.dumps([VERSION, dict(task), purpose, prompts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save_floors(file: Path, entries: Mapping[str, Entry]) -> None:
    """Add floors to a file. A folder that cannot be written keeps nothing, because every floor can be computed."""
    try:
        make_private(file.parent)
        if file.is_symlink():
            file.unlink()  # not its target, which may be a file outside of the store
        lines = (
            f'"{key}": {json.dumps(entry)}' for key, entry in sorted((_read(file) | dict(entries)).items())
        )
        write_output(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    except OSError:
        return


def import_floors(export: Path, store: Store) -> None:
    """Add the floors of an export to those of a store. Floors that the store knows stay unchanged."""
    require_file(export / FLOORS_FILE)
    if floors := _read(export / FLOORS_FILE):
        file = store.storage / FLOORS_FILE
        save_floors(file, floors | _read(file))


def saved_form(floor: MeanFloor, task: Mapping[str, Any], purpose: Purpose, prompts: int) -> Entry:
    """The floor of a task on a set of prompts as JSON, which has no NaN, with a checksum."""
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(floor).items()
    }
    plain |= {"error": None} if floor.how == "none" else {}
    entry = plain | {"task": dict(task), "purpose": purpose, "prompts": prompts}
    return entry | {SUM: _sum(entry)}


def _sum(entry: Entry) -> str:
    """16 hexadecimal digits of the hash of everything else in the entry."""
    text = json.dumps({name: value for name, value in entry.items() if name != SUM}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _mean_floor(entry: Entry) -> MeanFloor:
    if entry["how"] not in get_args(How):
        raise ValueError(f"{entry['how']!r} is no kind of floor")
    ignorance = np.array(entry["ignorance"], np.float64)
    error = (
        np.full_like(ignorance, np.nan) if entry["error"] is None else np.array(entry["error"], np.float64)
    )
    return MeanFloor(cast(How, entry["how"]), entry["name"], error, ignorance)


def _read(file: Path) -> dict[str, Entry]:
    """The sound floors of a file. Others are left out, because every floor can be computed.

    A floor without its sum is not sound, so a changed value cannot change a verdict.
    """
    try:
        content = json.loads(read_regular(file))
        return {str(key): entry for key, entry in content.items() if _is_sound(key, entry)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _is_sound(key: str, entry: Any) -> bool:
    try:
        if entry[SUM] != _sum(entry) or key != floor_key(entry["task"], entry["purpose"], entry["prompts"]):
            return False
        floor = _mean_floor(entry)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    sizes = floor.error.shape == floor.ignorance.shape and floor.error.ndim == 1 and floor.error.size > 0
    finite = np.isfinite(floor.ignorance).all() and (floor.how == "none" or np.isfinite(floor.error).all())
    return bool(isinstance(floor.name, str) and sizes and finite)
