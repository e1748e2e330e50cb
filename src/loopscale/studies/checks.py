"""What the parts of a study require of each other, before the cells are known and after."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from pydantic import ValidationError

from loopscale.core.config import Family
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.stats.prediction import LEAST_PREDICTING
from loopscale.studies.axes import FACTORS_OF_PROMPTS, PROMPTS
from loopscale.studies.cells import Layout
from loopscale.studies.claim_checks import claim_faults
from loopscale.studies.claims import OF_CURVES
from loopscale.studies.files import PARTS
from loopscale.studies.held_out import (
    UNSUITED,
    axis_values,
    has_circle,
    held_out_tests,
    held_out_values,
    tests_of_law,
    waits_for,
)
from loopscale.studies.mistakes import Fault, Place, one_of, quoted
from loopscale.studies.schema import CURVE_AXES, DERIVED_AXES, LawSpec, StudySchema, solver_kinds, solving
from loopscale.studies.settings import MOST_LOOPS, MOST_PROMPTS, UNTRAINED, validation_faults
from loopscale.studies.trees import is_tree, leaves
from loopscale.studies.where import paths
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound

MOST_CELLS = 10_000
EXAMPLES = {"task": "dim", "model": "width", "training": "lr"}
ERRORS = ("error", "error_last", "raw_error", "excess", "regret", "regret_last")


def faults_before_crossing(study: StudySchema) -> Iterator[Fault]:
    """Faults that do not depend on the cells."""
    yield from _fixed(study.fixed)
    for role, axes in (("scientific", study.scientific), ("nuisance", study.nuisance)):
        for path in axes:
            yield from _axis_path(role, path)
    for path, values in study.scientific.items():
        if not values:
            remedy = f"write the values to compare, as in {path}: [1, 2]"
            yield Fault(("scientific", path), f"{path} has no values", remedy)
    yield from _whole_parts(study)
    yield from _clashes(study)
    yield from _evaluation_limits(study)
    if (cells := math.prod(map(len, study.scientific.values()))) > MOST_CELLS:
        what = f"the scientific values cross to {cells:,} cells"
        yield Fault(("scientific",), what, f"write fewer values: at most {MOST_CELLS:,} cells can be planned")
    yield from _search(study)
    yield from _condition(study)


def _fixed(fixed: Mapping[str, Any]) -> Iterator[Fault]:
    for name, value in fixed.items():
        if name == "seed":
            yield _seed_fault(("fixed", name))
        elif name not in PARTS:
            yield Fault(("fixed", name), f"fixed has no setting {name!r}", one_of(name, PARTS))
        elif not isinstance(value, Mapping) and not (name != "training" and isinstance(value, str)):
            yield Fault(("fixed", name), f"fixed.{name} is {value!r}", "write a mapping of name: value")


def _seed_fault(place: Place) -> Fault:
    return Fault(place, "the study chooses the seeds", "remove seed, and write replicates: n")


def _axis_path(role: str, path: str) -> Iterator[Fault]:
    place: Place = (role, path)
    head = path.split(".")[0]
    if head == "seed":
        yield _seed_fault(place)
    elif head not in PARTS or not all(path.split(".")):
        what = f"{role} names {path or 'nothing'}, which is no setting of a trial"
        yield Fault(place, what, f"begin with one of {', '.join(PARTS)}, as in training.loops")
    elif role == "nuisance" and head == path:
        yield Fault(place, f"{path} is tuned as a whole", f"name one setting, as in {path}.{EXAMPLES[path]}")
    elif path in UNTRAINED:
        yield Fault(place, f"{path} has no effect on training", "put it under fixed")
    elif role == "nuisance" and head == "task":
        what = f"{path} is tuned, but tuning would only find the easiest task"
        yield Fault(place, what, f"put {path} under scientific")
    elif role == "nuisance" and path.endswith(".kind"):
        what = f"{path} is tuned, but a study compares kinds in separate cells"
        yield Fault(place, what, f"put {path} under scientific")


def _whole_parts(study: StudySchema) -> Iterator[Fault]:
    """The values of an axis that is a whole part of a trial must be mappings."""
    for path in study.scientific.keys() & set(PARTS):
        for n, value in enumerate(study.scientific[path]):
            if not isinstance(value, Mapping):
                form = "{name: value}" if path == "training" else f"{{kind: {value}}}"
                yield Fault(("scientific", path, n), f"{path} is {quoted(value)}", f"write {form} there")


def _clashes(study: StudySchema) -> Iterator[Fault]:
    """A setting has one role: it is varied by the question, or tuned."""
    for path in study.nuisance:
        if path in study.scientific:
            what = f"{path} is both scientific and nuisance"
            yield Fault(("nuisance", path), what, "keep it in one of the two")
            continue
        for axis, values in study.scientific.items():
            if path.startswith(f"{axis}."):
                inner = path.removeprefix(f"{axis}.")
                for n, value in enumerate(values):
                    if is_tree(value) and inner in dict(leaves(value)):
                        what = f"{path} is set by a value of {axis}, and tuned"
                        remedy = f"remove {inner} here, or {path} from nuisance"
                        yield Fault(("scientific", axis, n, inner), what, remedy)
    for path in study.scientific:
        component = path.removesuffix(".kind")
        if path != component and component in study.scientific:
            what = f"{path} is varied here and by the values of {component}"
            yield Fault(("scientific", path), what, f"write the kinds in the values of {component}")


def _evaluation_limits(study: StudySchema) -> Iterator[Fault]:
    for name, most in (("loops", MOST_LOOPS), ("prompts", MOST_PROMPTS)):
        if (value := getattr(study.evaluate, name)) > most:
            yield Fault(("evaluate", name), f"evaluate.{name} is {value:,}", f"write {most:,} or less")


def _search(study: StudySchema) -> Iterator[Fault]:
    search, scheduler = study.search, study.scheduler
    if len(search.weighs) > 1 and scheduler.prunes:
        what = f"{search.kind} cannot go with {scheduler.kind}, which compares by one objective"
        yield Fault(("scheduler",), what, "write scheduler: {kind: none}, or another search")
    yield from search.faults(study.nuisance)


def _condition(study: StudySchema) -> Iterator[Fault]:
    try:
        named = paths(study.where) if study.where.strip() else ()
    except ValueError as problem:
        yield Fault.from_text(("where",), problem)
        return
    for path in named:
        if path in study.nuisance and path not in study.scientific:
            what = f"where names {path}, which is tuned within each cell"
            yield Fault(("where",), what, "name scientific or fixed settings only")


def faults_after_crossing(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Faults of the parts that refer to the cells."""
    if not layout.cells:
        return
    yield from _unused_ranges(study, layout)
    yield from _unused_settings(study, layout)
    unposed = list(_posed(study, layout))
    tasks = _evaluated_tasks(study, layout)
    law_faults = list(_laws(study, layout, tasks))
    yield from law_faults or _hold_outs(study, layout)
    if study.claims:
        yield from claim_faults(
            study, layout, list(dict.fromkeys([*OF_CURVES, *ERRORS, *_task_measures(tasks)]))
        )
    yield from unposed or _baselines(study, tasks)
    yield from _steps(study, layout)


def _unused_ranges(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    for path in study.nuisance:
        if not any(path in space for space in layout.spaces.values()):
            settings = dict.fromkeys(
                name for trial in layout.trials.values() for name, _ in leaves(trial.settings)
            )
            what = f"nuisance names {path}, a setting that no cell has"
            yield Fault(("nuisance", path), what, one_of(path, [name for name in settings if name != "seed"]))


def _unused_settings(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A fixed setting may be unknown to some kinds, but at least one kind must have it."""
    for part in ("task", "model"):
        chosen: list[Family] = [getattr(trial, part) for trial in layout.trials.values()]
        known = {name for component in chosen for name in type(component).model_fields}
        for name in study.fixed.get(part, {}):
            if name not in known | {"kind"}:
                what = f"{part} has no setting {name!r} in any cell"
                yield Fault(("fixed", part, name), what, one_of(name, sorted(known)))


def _evaluated_task(study: StudySchema, task: Task) -> Task:
    """The task that errors are measured on. If it is invalid, which `_posed` reports, the task trained on."""
    try:
        return study.evaluate.posed(task)
    except ValueError:
        return task


def _evaluated_tasks(study: StudySchema, layout: Layout) -> list[Task]:
    """The tasks that errors are measured on, each once."""
    tasks = [_evaluated_task(study, trial.task) for trial in layout.trials.values()]
    return list({task.model_dump_json(): task for task in tasks}.values())


def _laws(study: StudySchema, layout: Layout, tasks: list[Task]) -> Iterator[Fault]:
    values: dict[str, list[Any]] = defaultdict(list)
    for cell in layout.cells:
        for path, value in cell.values.items():
            values[path].append(value)
    numeric = [
        path
        for path, given in values.items()
        if all(type(value) in (int, float) for value in given) and len(set(given)) > 1
    ]
    for n, law in enumerate(study.laws):
        yield from _theory(n, law, study, layout)
        yield from _measure(n, law, tasks)
        if law.along in CURVE_AXES or law.along in numeric:
            continue
        place: Place = ("laws", n, "along")
        if settings := DERIVED_AXES.get(law.along):
            if not any(path.startswith(settings) for path in numeric):
                names = " or ".join(name.rstrip(".") for name in settings)
                what = f"a law runs along {law.along}, which are the same in every cell"
                yield Fault(place, what, f"vary a number of {names}")
            continue
        if law.along in values:
            reason = "which has fewer than two numbers"
        else:
            reason = (
                "which is not numeric" if law.along in study.scientific else "which the study does not vary"
            )
        what = f"a law runs along {law.along}, {reason}"
        yield Fault(place, what, one_of(law.along, [*numeric, *CURVE_AXES, *DERIVED_AXES]))


def _hold_outs(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Held-out cells can be predicted: their law has enough other cells, and noise that is known."""
    shared = layout.shared_settings
    faults = False
    for n, law in enumerate(study.laws):
        place: Place = ("laws", n, "hold_out")
        for what, remedy in _hold_out_faults(study, law, layout, shared):
            faults = True
            yield Fault(place, what, remedy)
    if faults:
        return
    laws = [law.model_dump() for law in study.laws]
    if has_circle(waits_for(held_out_tests(laws, layout.cells, shared))):
        what = "laws hold out each other's cells, so that none of these cells can start"
        yield Fault(("laws",), what, "hold out the largest values only")


def _hold_out_faults(
    study: StudySchema, law: LawSpec, layout: Layout, shared: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """What is wrong with one law's held-out values, and the remedy."""
    if law.hold_out is None:
        return
    if reason := UNSUITED.get(law.along):
        yield (
            f"a law along {law.along} holds out values, but {reason}",
            "hold out values of a numeric setting",
        )
        return
    if law.along == PROMPTS and (tuned := [path for path in FACTORS_OF_PROMPTS if path in study.nuisance]):
        what = f"a law along prompts holds out values, but {tuned[0]} is tuned"
        yield what, f"put {tuned[0]} under fixed or scientific"
        return
    values = axis_values(layout.cells, law.along, shared)
    held_out = held_out_values(law.hold_out, values)
    if unknown := sorted(held_out - set(values)):
        what = f"hold_out names {unknown[0]:g}, which is no value of {law.along}"
        yield what, f"write some of {', '.join(f'{value:g}' for value in values)}"
    elif len(values) - len(held_out) < LEAST_PREDICTING:
        left = max(0, len(values) - len(held_out))
        what = f"hold_out leaves {left} value{'s' * (left != 1)} of {law.along} for the fit of the law"
        yield what, f"leave at least {LEAST_PREDICTING}"
    elif not list(tests_of_law(law.model_dump(), layout.cells, shared)):
        what = f"no combination of the other settings has {LEAST_PREDICTING} fitted values of {law.along}"
        yield f"hold_out predicts nothing: {what}", "loosen the condition, or remove hold_out"
    elif study.replicates < 2:
        yield "hold_out with one replicate: the noise is unknown", "write replicates: 2 or more"
    elif any(_other_hold_out(law, other) for other in study.laws):
        what = f"two laws of {law.of} along {law.along} hold out different values"
        yield what, "hold out the same values, or remove one of the two"


def _other_hold_out(law: LawSpec, other: LawSpec) -> bool:
    same = (law.of, law.along) == (other.of, other.along)
    return same and other.hold_out is not None and other.hold_out != law.hold_out


def _measure(n: int, law: LawSpec, tasks: list[Task]) -> Iterator[Fault]:
    """A law is of an error, or of another measure of the task of some cell."""
    known = dict.fromkeys(ERRORS)
    if law.along not in CURVE_AXES and law.of not in known:
        known |= dict.fromkeys(_task_measures(tasks))
    if law.of not in known:
        what = f"a law along {law.along} is of {law.of!r}, which is not measured there"
        yield Fault(("laws", n, "of"), what, one_of(law.of, known))


def _task_measures(tasks: Iterable[Task]) -> Iterator[str]:
    """The names of the tasks' own measures."""
    for task in tasks:
        batch = task.sample(1, stream("problem"))
        yield from task.measures(torch.zeros_like(batch.targets)[None], batch)


def _theory(n: int, law: LawSpec, study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A bound must apply to at least one cell. The other cells get no theory."""
    if law.theory is None:
        return
    given = {name: value for name, value in law.theory.items() if name != "kind"}
    reasons = list[str]()
    for trial in layout.trials.values():
        try:
            posed = {"task": _evaluated_task(study, trial.task).model_dump(mode="json")}
            Bound.fill(law.theory["kind"], given, dict(leaves(trial.settings | posed)))
            return
        except ValidationError as problem:
            error = problem.errors()[0]
            name = ".".join(map(str, error["loc"]))
            reasons.append(f"{name} {quoted(error['input'])}: {error['msg'].lower()}")
        except ValueError as problem:
            reasons.append(str(problem))
    kind = law.theory["kind"]
    what = f"bound {kind} fits no cell ({reasons[0]})"
    yield Fault(("laws", n, "theory"), what, f"write its settings, as in theory: {{kind: {kind}, ...}}")


def _posed(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Every cell must have a valid task to be evaluated on."""
    task = study.evaluate.task
    if task is None:
        return
    for trial in layout.trials.values():
        try:
            study.evaluate.posed(trial.task)
        except ValidationError as problem:
            for fault in validation_faults(problem, Task, {"kind": trial.task.kind} | task):
                yield fault._replace(place=("evaluate", "task", *fault.place))
            return
        except ValueError as problem:
            yield Fault.from_text(("evaluate", "task"), problem, "evaluate.task: ", "change it")
            return


def _baselines(study: StudySchema, tasks: list[Task]) -> Iterator[Fault]:
    for n, solver in enumerate(study.baselines):
        if solver in study.baselines[:n]:
            yield Fault(("baselines", n), f"baseline {solver.kind} is listed twice", "keep one of the two")
    used = {solver.kind for task in tasks for solver in solving(study.baselines, task)}
    for n, solver in enumerate(study.baselines):
        if solver.kind in used:
            yield from _refusal(n, solver, tasks)
        else:
            kinds = sorted({task.kind for task in tasks})
            what = f"baseline {solver.kind} solves no task of this study ({', '.join(kinds)})"
            fitting = dict.fromkeys(kind for task in tasks for kind in solver_kinds(task))
            yield Fault(("baselines", n), what, one_of(solver.kind, fitting) if fitting else "leave it out")


def _refusal(n: int, solver: Solver, tasks: list[Task]) -> Iterator[Fault]:
    """Run one step of the baseline on one prompt of each of its tasks. Report why it cannot run."""
    for task in tasks:
        if solving([solver], task):
            try:
                solver.predict(task.sample(1, stream("problem")), 1)
            except ValueError as problem:
                prefix = f"baseline {solver.kind} on {task.kind}: "
                yield Fault.from_text(("baselines", n), problem, prefix, "change its settings")
                return


def _steps(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Trials must reach the first rung, and the evaluation must reach the loop that they are trained for."""
    tuned = [
        trial.training.steps
        for key, corners in layout.corners.items()
        if layout.spaces[key]
        for trial in corners
    ]
    yield from study.scheduler.faults(min(tuned, default=math.inf), max(tuned, default=0))
    loops = max(trial.steps_per_prompt for corners in layout.corners.values() for trial in corners)
    if study.evaluate.loops < loops:
        what = f"evaluate.loops is {study.evaluate.loops}, and a trial has {loops} loops or layers"
        yield Fault(("evaluate", "loops"), what, f"write {loops} or more")
