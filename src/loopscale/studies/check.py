"""What a study's parts ask of each other: paths that clash, laws and baselines with nothing to run on."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from pydantic import ValidationError

from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.studies.cells import MOST_CELLS, how_many
from loopscale.studies.layout import Layout
from loopscale.studies.limits import MOST_LOOPS, MOST_PROMPTS
from loopscale.studies.mistakes import Fault, Place, one_of, shown
from loopscale.studies.parts import ALONG, DERIVED, Law
from loopscale.studies.settings import PARTS, UNSEEN
from loopscale.studies.space import Choice, leaves
from loopscale.studies.where import paths
from loopscale.studies.wording import faults
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from loopscale.training.trial import Trial

if TYPE_CHECKING:
    from loopscale.studies.spec import Study

EXAMPLES = {"task": "dim", "model": "width", "training": "lr"}
MOST_POINTS = 10_000
ERRORS = ("error", "error_last", "raw_error", "excess")


def before_crossing(study: "Study") -> Iterator[Fault]:
    """What is wrong whatever the cells are."""
    yield from _fixed(study.fixed)
    for role, axes in (("scientific", study.scientific), ("nuisance", study.nuisance)):
        for path in axes:
            yield from _path(role, path)
    for path, values in study.scientific.items():
        if not values:
            yield Fault(
                ("scientific", path),
                f"{path} has no values",
                f"write the values to compare, as in {path}: [1, 2]",
            )
    yield from _parts(study)
    yield from _clashes(study)
    yield from _evaluation(study)
    if (cells := how_many(study.scientific)) > MOST_CELLS:
        what = f"the scientific values cross to {cells:,} cells"
        yield Fault(("scientific",), what, f"vary less: at most {MOST_CELLS:,} cells can be planned")
    yield from _search(study)
    yield from _condition(study)


def _fixed(fixed: Mapping[str, Any]) -> Iterator[Fault]:
    for name, value in fixed.items():
        if name == "seed":
            yield Fault(
                ("fixed", name), "a study chooses the seeds itself", "take seed out, and write replicates: n"
            )
        elif name not in PARTS:
            yield Fault(("fixed", name), f"fixed has no setting {name!r}", one_of(name, PARTS))
        elif not isinstance(value, Mapping) and not (name != "training" and isinstance(value, str)):
            yield Fault(("fixed", name), f"fixed.{name} is {value!r}", "write a mapping of name: value")


def _path(role: str, path: str) -> Iterator[Fault]:
    place: Place = (role, path)
    head = path.split(".")[0]
    if head == "seed":
        yield Fault(place, "a study chooses the seeds itself", "take seed out, and write replicates: n")
    elif head not in PARTS or not all(path.split(".")):
        yield Fault(
            place,
            f"{role} names {path or 'nothing'}, which the trial has not got",
            f"begin with one of {', '.join(PARTS)}, as in training.loops",
        )
    elif role == "nuisance" and head == path:
        yield Fault(
            place, f"{path} is tuned as a whole", f"name one setting of it, as in {path}.{EXAMPLES[path]}"
        )
    elif path in UNSEEN:
        yield Fault(place, f"{path} changes nothing that is trained", "put it under fixed")
    elif role == "nuisance" and head == "task":
        yield Fault(
            place, f"{path} is tuned, but an easier task is no better answer", f"put {path} under scientific"
        )
    elif role == "nuisance" and path.endswith(".kind"):
        yield Fault(
            place, f"{path} is tuned, but kinds are what a study compares", f"put {path} under scientific"
        )


def _parts(study: "Study") -> Iterator[Fault]:
    """An axis that is a whole part of a trial has mappings for its values."""
    for path in study.scientific.keys() & set(PARTS):
        for n, value in enumerate(study.scientific[path]):
            if not isinstance(value, Mapping):
                form = "{name: value}" if path == "training" else f"{{kind: {value}}}"
                yield Fault(("scientific", path, n), f"{path} is {shown(value)}", f"write {form} there")


def _evaluation(study: "Study") -> Iterator[Fault]:
    for name, most in (("loops", MOST_LOOPS), ("prompts", MOST_PROMPTS)):
        if (value := getattr(study.evaluate, name)) > most:
            yield Fault(("evaluate", name), f"evaluate.{name} is {value:,}", f"write {most:,} or less")


def _clashes(study: "Study") -> Iterator[Fault]:
    """A setting has one role: it is asked about, or tuned."""
    for path in study.nuisance:
        if path in study.scientific:
            yield Fault(
                ("nuisance", path), f"{path} is both scientific and nuisance", "keep it in one of the two"
            )
            continue
        for axis, values in study.scientific.items():
            if path.startswith(f"{axis}."):
                inner = path.removeprefix(f"{axis}.")
                for n, value in enumerate(values):
                    if isinstance(value, Mapping) and inner in dict(leaves(value)):
                        what = f"{path} is set by a value of {axis}, and tuned"
                        yield Fault(
                            ("scientific", axis, n, inner), what, f"take {inner} out here, or out of nuisance"
                        )
    for path in study.scientific:
        if path.endswith(".kind") and path.removesuffix(".kind") in study.scientific:
            yield Fault(
                ("scientific", path),
                f"{path} is varied twice",
                f"keep it within {path.removesuffix('.kind')}",
            )


def _search(study: "Study") -> Iterator[Fault]:
    if study.search.kind == "nsga2" and study.scheduler.kind != "none":
        what = f"nsga2 cannot go with {study.scheduler.kind}, which compares by one objective"
        yield Fault(("scheduler",), what, "write scheduler: {kind: none}, or another search")
    if study.search.kind != "grid":
        return
    without = [
        p for p, axis in study.nuisance.items() if not isinstance(axis, Choice) and axis.points is None
    ]
    for path in without:
        what = f"a grid cannot cross the range of {path}"
        yield Fault(("nuisance", path), what, "write points: n with the range, or choice: [...]")
    size = 0 if without else math.prod(len(axis.grid()) for axis in study.nuisance.values())
    if size > MOST_POINTS:
        yield Fault(
            ("search",), f"the grid has {size:,} points in a cell", f"at most {MOST_POINTS:,} can be planned"
        )


def _condition(study: "Study") -> Iterator[Fault]:
    try:
        tuned = (
            [path for path in paths(study.where) if path in study.nuisance.keys() - study.scientific.keys()]
            if study.where.strip()
            else []
        )
    except ValueError as problem:
        what, _, remedy = str(problem).partition("; ")
        yield Fault(("where",), what, remedy)
        return
    for path in tuned:
        what = f"where names {path}, which is tuned within each cell"
        yield Fault(("where",), what, "name scientific or fixed settings only")


def after_crossing(study: "Study", layout: Layout) -> Iterator[Fault]:
    """What is wrong with the rest of the study, given its cells."""
    if not layout.cells:
        return
    for path in study.nuisance:
        if not any(path in space for space in layout.spaces.values()):
            known = dict.fromkeys(
                path for trial in layout.trials.values() for path, _ in leaves(trial.settings)
            )
            what = f"nuisance names {path}, which the trial has not got in any cell"
            yield Fault(("nuisance", path), what, one_of(path, [each for each in known if each != "seed"]))
    yield from _unused(study, layout)
    yield from _laws(study, layout)
    unposed = list(_posed(study, layout))
    yield from unposed or _baselines(study, layout)
    yield from _steps(study, layout)


def _unused(study: "Study", layout: Layout) -> Iterator[Fault]:
    """A fixed setting may be one that some kinds lack, but some kind must have it."""
    for part in ("task", "model"):
        known = {name for trial in layout.trials.values() for name in type(getattr(trial, part)).model_fields}
        for name in study.fixed.get(part, {}):
            if name not in known | {"kind"}:
                what = f"{part} has no setting {name!r} in any cell"
                yield Fault(("fixed", part, name), what, one_of(name, sorted(known)))


def _laws(study: "Study", layout: Layout) -> Iterator[Fault]:
    values = {
        path: [c.values[path] for c in layout.cells if path in c.values]
        for c in layout.cells
        for path in c.values
    }
    numeric = [
        p
        for p, found in values.items()
        if all(type(v) in (int, float) for v in found) and len(set(found)) > 1
    ]
    for n, law in enumerate(study.laws):
        yield from _theory(n, law, study, layout)
        yield from _measured(n, law, study, layout)
        if law.along in ALONG or law.along in numeric:
            continue
        if law.along in DERIVED:
            if not any(path.startswith(DERIVED[law.along]) for path in numeric):
                what = f"a law runs along {law.along}, which are the same in every cell"
                remedy = f"vary a number of {' or '.join(name.rstrip('.') for name in DERIVED[law.along])}"
                yield Fault(("laws", n, "along"), what, remedy)
            continue
        words = (
            "is not numeric"
            if law.along in study.scientific and law.along not in values
            else "the study does not vary"
        )
        if law.along in values:
            words = "has no two numbers to run along"
        what = f"a law runs along {law.along}, which {words.removeprefix('which ')}"
        yield Fault(("laws", n, "along"), what, one_of(law.along, [*numeric, *ALONG, *DERIVED]))


def _measured(n: int, law: Law, study: "Study", layout: Layout) -> Iterator[Fault]:
    """A law is of an error, or of what the task of some cell measures besides."""
    known = dict.fromkeys(ERRORS)
    if law.along not in ALONG and law.of not in known:
        tasks = [_evaluated(study, trial) for trial in layout.trials.values()]
        for task in {task.model_dump_json(): task for task in tasks}.values():
            batch = task.sample(1, stream("problem"))
            known |= dict.fromkeys(task.measures(torch.zeros_like(batch.targets)[None], batch))
    if law.of not in known:
        yield Fault(("laws", n, "of"), f"a law along {law.along} is of {law.of!r}", one_of(law.of, known))


def _evaluated(study: "Study", trial: Trial) -> Task:
    """The task that the trial's errors are of; where there is none, which is said elsewhere, the one trained on."""
    try:
        return study.evaluate.posed(trial.task)
    except ValueError:
        return trial.task


def _theory(n: int, law: Law, study: "Study", layout: Layout) -> Iterator[Fault]:
    """A bound must hold in some cell at least; where it does not, a law has no theory beside it."""
    if law.theory is None:
        return
    given = {name: value for name, value in law.theory.items() if name != "kind"}
    problems = list[str]()
    for trial in layout.trials.values():
        try:
            posed = {"task": _evaluated(study, trial).model_dump(mode="json")}
            Bound.fill(law.theory["kind"], given, dict(leaves(trial.settings | posed)))
            return
        except ValidationError as problem:
            first = problem.errors()[0]
            problems.append(
                f"{'.'.join(map(str, first['loc']))} {shown(first['input'])}: {first['msg'].lower()}"
            )
        except ValueError as problem:
            problems.append(str(problem))
    place: Place = ("laws", n, "theory")
    yield Fault(
        place, f"bound {law.theory['kind']} fits no cell ({problems[0]})", "write its settings with it"
    )


def _posed(study: "Study", layout: Layout) -> Iterator[Fault]:
    """Every cell must have a task to be evaluated on."""
    task = study.evaluate.task
    if task is None:
        return
    for trial in layout.trials.values():
        try:
            study.evaluate.posed(trial.task)
        except ValidationError as problem:
            for fault in faults(problem, Task, {"kind": trial.task.kind} | task):
                yield fault._replace(place=("evaluate", "task", *fault.place))
            return
        except ValueError as problem:
            what, _, remedy = str(problem).partition("; ")
            yield Fault(("evaluate", "task"), f"evaluate.task: {what}", remedy or "change it")
            return


def _baselines(study: "Study", layout: Layout) -> Iterator[Fault]:
    for n, solver in enumerate(study.baselines):
        if solver in study.baselines[:n]:
            yield Fault(("baselines", n), f"baseline {solver.kind} is there twice", "keep one of the two")
    tasks = [study.evaluate.posed(trial.task) for trial in layout.trials.values()]
    used = {solver.kind for task in tasks for solver in study.solving(task)}
    for n, solver in enumerate(study.baselines):
        if (refusal := _refusal(solver, study, layout)) and solver.kind in used:
            yield Fault(("baselines", n), *refusal)
        if solver.kind not in used:
            kinds = sorted({task.kind for task in tasks})
            what = f"baseline {solver.kind} solves no task of this study ({', '.join(kinds)})"
            fitting = [kind for task in tasks for kind in study.solvers_of(task)]
            yield Fault(
                ("baselines", n),
                what,
                one_of(solver.kind, dict.fromkeys(fitting)) if fitting else "leave it out",
            )


def _refusal(solver: Solver, study: "Study", layout: Layout) -> tuple[str, str] | None:
    """Why a baseline cannot run on a task of its kind, seen by running a step of it on one prompt of each."""
    posed = [study.evaluate.posed(trial.task) for trial in layout.trials.values()]
    tasks = {task.model_dump_json(): task for task in posed}
    for task in tasks.values():
        if solver in study.solving(task):
            try:
                solver.predict(task.sample(1, stream("problem")), 1)
            except ValueError as problem:
                what, _, remedy = str(problem).partition("; ")
                return f"baseline {solver.kind} on {task.kind}: {what}", remedy or "change its settings"
    return None


def _steps(study: "Study", layout: Layout) -> Iterator[Fault]:
    """Trials must reach the first rung, and be evaluated at the loop that they are trained for."""
    tuned = [
        t.training.steps for key, corners in layout.corners.items() if layout.spaces[key] for t in corners
    ]
    first, steps = study.scheduler.first_rung, min(tuned, default=math.inf)
    if study.scheduler.kind != "none" and first >= steps:
        what = f"scheduler.first_rung {first} is not before the last of {steps} steps"
        yield Fault(("scheduler", "first_rung"), what, f"write a step below {steps}")
    rungs = max(tuned, default=0) // first
    if study.scheduler.kind == "median" and rungs > MOST_POINTS:
        what = f"scheduler.first_rung {first} makes {rungs:,} comparisons of a trial"
        yield Fault(("scheduler", "first_rung"), what, f"write {max(tuned) // MOST_POINTS} or more")
    loops = max(t.steps_per_prompt for corners in layout.corners.values() for t in corners)
    if study.evaluate.loops < loops:
        what = f"evaluate.loops {study.evaluate.loops} ends before the {loops} loops or layers of a trial"
        yield Fault(("evaluate", "loops"), what, f"write {loops} or more")
