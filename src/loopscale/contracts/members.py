"""The members under test: those of one plugin, or those of the package."""

from typing import TypeVar

from loopscale.core.config import Family
from loopscale.tasks.base import Task

AnyFamily = TypeVar("AnyFamily", bound=Family)

selected: list[str] = []
"""The name and the hash of the plugin under test; empty for the package's own members."""


def under_test(family: type[AnyFamily]) -> dict[str, type[AnyFamily]]:
    """The members of a family under test, by kind."""
    wanted = selected or [""]
    return {kind: member for kind, member in family.choices().items() if member.plugin in wanted}


def gradable(task: Task) -> bool:
    """Whether a task has the sizes that a curriculum reduces."""
    return {"dim", "points"} <= type(task).model_fields.keys()


def small_task(task: Task, dim: int, points: int) -> Task:
    """The easier task of this size, or of the task's own size where the task is smaller or has no sizes."""
    if not gradable(task):
        return task
    settings = task.model_dump()
    return task.easier(min(dim, settings["dim"]), min(points, settings["points"]))
