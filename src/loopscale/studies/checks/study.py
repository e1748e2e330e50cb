"""What the parts of a study require of each other, before the cells are known and after."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from loopscale.core.config import Family, is_tree, leaves
from loopscale.core.plugins import OWN
from loopscale.core.seeds import stream
from loopscale.notation.files import BUDGET_PATHS, PARTS
from loopscale.notation.mistakes import Fault, Place, one_of, quoted
from loopscale.notation.settings import (
    MOST_LOOPS,
    MOST_PROMPTS,
    UNTRAINED,
    coercions,
    has_path,
    validation_faults,
)
from loopscale.notation.where import holds, paths
from loopscale.questions.axes.base import LawAxis, axis_of
from loopscale.questions.law import LawSpec
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.solvers.base import Solver
from loopscale.stats.milestones import KINDS as MILESTONES
from loopscale.studies.cells import Layout
from loopscale.studies.checks.claims import claim_faults
from loopscale.studies.schedulers.base import Scheduler
from loopscale.studies.schema import StudySchema, solver_kinds, solving
from loopscale.tasks.base import Task
from loopscale.tasks.idle_settings import idle_settings
from loopscale.theory.bounds.base import Bound

MOST_CELLS = 10_000
EXAMPLES = {"task": "dim", "model": "width", "training": "lr"}
TUNING_PARTS = {"search": "tunes the points", "scheduler": "prunes the tuning"}
"""Parts of a study that only a cell with something to tune reads, and their use."""
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
    yield from _never_read(study)
    yield from _without_effect(study)
    yield from _evaluation_limits(study)
    if (cells := math.prod(map(len, study.scientific.values()))) > MOST_CELLS:
        what = f"the scientific values cross to {cells:,} cells"
        yield Fault(("scientific",), what, f"write fewer values: at most {MOST_CELLS:,} cells can be planned")
    yield from _search(study)
    yield from _known(study)
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
    elif role == "nuisance" and path in BUDGET_PATHS:
        what = f"{path} is tuned, but tuning would only find the largest budget"
        yield Fault(place, what, f"put {path} under fixed or scientific")
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


def _never_read(study: StudySchema) -> Iterator[Fault]:
    """A fixed setting that is tuned in all cells is a mistake.

    A scientific axis may replace a fixed setting: its value is the value of the study without the axis. If an axis
    has several kinds, a range may apply to some cells only, and the other cells read the fixed value.
    """
    if any(is_tree(value) and "kind" in value for values in study.scientific.values() for value in values):
        return
    for path in study.nuisance:
        right = path not in study.scientific and not any(_axis_path("nuisance", path))
        if right and has_path(study.fixed, path):
            what = f"fixed sets {path}, and nuisance tunes it, so the fixed value is never read"
            yield Fault(("fixed", *path.split(".")), what, "keep one of the two")


def _without_effect(study: StudySchema) -> Iterator[Fault]:
    """A part that nothing reads, a rule that can never apply, and a law that is written twice, are mistakes."""
    if study.stop.error_below is not None and not study.nuisance:
        what = "stop.error_below ends searches, and this study tunes nothing"
        yield Fault(("stop", "error_below"), what, "remove it, or write ranges under nuisance")
    if study.budget.gpu_hours is not None and not study.resources.gpu:
        what = "budget.gpu_hours limits nothing, because a trial holds no GPU"
        yield Fault(("budget", "gpu_hours"), what, "write budget.core_hours, or resources: {gpu: 1}")
    if "nuisance" not in study.model_fields_set:  # `--set nuisance={}` turns the tuning off for a run
        for name, use in TUNING_PARTS.items():
            if name in study.model_fields_set and (name != "scheduler" or study.scheduler.prunes):
                what = f"{name} {use} of a cell, and this study tunes nothing"
                yield Fault((name,), what, f"remove {name}, or write ranges under nuisance")
    if not study.scheduler.prunes:
        for name in study.scheduler.model_fields_set & Scheduler.model_fields.keys() - {"kind"}:
            what = f"{study.scheduler.kind} has no rungs, so scheduler.{name} is never read"
            yield Fault(("scheduler", name), what, "write scheduler: {kind: none}, or kind: asha")
    for n, law in enumerate(study.laws):
        if law in study.laws[:n]:
            yield Fault(("laws", n), "the law is written twice", "keep one of the two")
        if len(set(law.form)) < len(law.form):
            yield Fault(("laws", n, "form"), "a form is written twice", "write every form once")


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


def _known(study: StudySchema) -> Iterator[Fault]:
    """Known points name tuned settings and lie inside their ranges."""
    for n, point in enumerate(study.known):
        for path, value in point.items():
            if path not in study.nuisance:
                what = f"known names {path}, which is not tuned"
                yield Fault(("known", n, path), what, one_of(path, study.nuisance))
                continue
            try:
                study.nuisance[path].read(value)
            except ValueError as problem:
                yield Fault.from_text(("known", n, path), problem, f"{path} ")
        if not point:
            yield Fault(("known", n), "a known point is empty", "write settings, as in {training.lr: 1e-3}")
        elif point in study.known[:n]:
            yield Fault(("known", n), "a known point is written twice", "keep one of the two")
    if study.known and study.search.exhaustive:
        what = f"a {study.search.kind} tries all of its points"
        yield Fault(("known",), what, "leave known out, or write another search")
    elif len(study.known) > study.search.trials:
        what = f"known has {len(study.known)} points, and search.trials is {study.search.trials}"
        yield Fault(("known",), what, f"write search.trials: {len(study.known)} or more")


def _condition(study: StudySchema) -> Iterator[Fault]:
    try:
        named = paths(study.where) if study.where.strip() else ()
    except ValueError as problem:
        yield Fault.from_text(("where",), problem)
        return
    if study.where.strip() and not named:
        try:
            holds(study.where, {})
        except ValueError as problem:
            yield Fault.from_text(("where",), problem)
            return
        what = f"where {study.where!r} names no setting, so it chooses nothing"
        yield Fault(("where",), what, "name a setting, as in training.window <= training.loops")
    for path in named:
        if path == "training.steps" and _has_budget(study):
            what = "where names training.steps, which follows from the budget of each cell"
            yield Fault(("where",), what, "name the budget")


def _has_budget(study: StudySchema) -> bool:
    """True if some cell may have a budget in place of steps."""
    paths = (path for tree in (study.fixed, *_components(study)) for path, _ in leaves(tree))
    return bool({*paths, *study.scientific} & set(BUDGET_PATHS))


def _components(study: StudySchema) -> Iterator[dict[str, Any]]:
    """The values of axes that are whole components, each as a tree of the trial."""
    for path, values in study.scientific.items():
        yield from ({path: value} for value in values if is_tree(value))


def faults_after_crossing(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Faults of the parts that refer to the cells."""
    if not layout.cells:
        return
    yield from _without_plugin(study, layout)
    yield from _unused_ranges(study, layout)
    yield from _unused_settings(study, layout)
    yield from _idle_settings(study, layout)
    yield from _infeasible_known(study, layout)
    unposed = list(_posed(study, layout))
    tasks = _evaluated_tasks(study, layout)
    yield from _without_choice(study, layout)
    law_faults = list(_laws(study, layout, tasks))
    yield from law_faults
    if study.holds_out and not law_faults:
        from loopscale.studies.checks.held_out import hold_out_faults  # few studies need this module

        yield from hold_out_faults(study, layout)
    if study.claims:
        measured = (*CURVE_MEASURES, *ERRORS, *MILESTONES, *_other_measures(study, layout, tasks))
        acted = [name for task in tasks for name in task.outcome_names]
        yield from claim_faults(study, layout, list(dict.fromkeys(measured)), acted)
    if study.until:
        from loopscale.studies.checks.until import until_faults  # few studies need this module

        yield from until_faults(study.until, study, layout)
    yield from unposed or _baselines(study, tasks)
    yield from _steps(study, layout)
    yield from _equal_cost(study, layout)
    yield from _further_measures(study, tasks)


def _without_plugin(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Members that a notebook or a program has defined by itself. Workers do not know such a class."""
    named: dict[type[Family], Place] = {
        type(study.search): ("search",),
        type(study.scheduler): ("scheduler",),
    }
    named |= {type(solver): ("baselines", n) for n, solver in enumerate(study.baselines)}
    for trial in layout.trials.values():
        for part, component in (("task", trial.task), ("model", trial.model)):
            named[type(component)] = ("fixed" if part in study.fixed else "scientific", part)
    for member, place in named.items():
        if not member.plugin and member.__module__.partition(".")[0] != OWN:
            what = f"{member.kind!r} is the class {member.__qualname__} of {member.__module__}, which is no plugin"
            remedy = (
                "write the class into a file, and name the file under plugins; workers import plugins only"
            )
            yield Fault(place, what, remedy)


def _unused_ranges(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    for path in study.nuisance:
        if not any(path in space for space in layout.spaces.values()):
            settings = dict.fromkeys(
                name for trial in layout.trials.values() for name, _ in leaves(trial.settings)
            )
            what = f"nuisance names {path}, a setting that no cell has"
            yield Fault(("nuisance", path), what, one_of(path, [name for name in settings if name != "seed"]))


def _infeasible_known(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A known point with all settings of a cell is feasible in some cell."""
    for n, point in enumerate(study.known):
        settings = [
            (key, {path: point[path] for path in space if path in point})
            for key, space in layout.spaces.items()
        ]
        named = study.nuisance.keys() >= point.keys()
        if named and not any(
            known and (known.keys() < layout.spaces[key].keys() or _feasible(layout, key, known))
            for key, known in settings
        ):
            what = f"the known point does not satisfy {study.where}"
            yield Fault(("known", n), what, "change the point, or loosen the condition")


def _feasible(layout: Layout, key: str, point: Mapping[str, Any]) -> bool:
    return key not in layout.relations or layout.relations[key].feasible(point)


def _unused_settings(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A fixed setting may be unknown to some kinds, but at least one kind must have it."""
    for part in ("task", "model"):
        chosen: list[Family] = [getattr(trial, part) for trial in layout.trials.values()]
        known = {name for component in chosen for name in type(component).model_fields}
        for name in study.fixed.get(part, {}):
            if name not in known | {"kind"}:
                what = f"{part} has no setting {name!r} in any cell"
                yield Fault(("fixed", part, name), what, one_of(name, sorted(known)))


def _idle_settings(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A fixed setting of the task must have an effect in some cell, or on the task of the evaluation."""
    given = [dict(trial.task) | {"kind": trial.task.kind} for trial in layout.trials.values()]
    given += [dict(task) | {"kind": task.kind} for task in _evaluated_tasks(study, layout)]
    idle = [(settings, idle_settings(settings)) for settings in given]
    for name in study.fixed.get("task", {}):
        reasons = [why.get(name) for settings, why in idle if name in settings and name != "kind"]
        if reasons and all(reasons):
            what = f"fixed sets task.{name}, and {reasons[0]}"
            yield Fault(("fixed", "task", name), what, "take the setting out")


def _without_choice(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A task where all answers are equally good decides nothing."""
    for trial in layout.trials.values():
        if trial.task.nothing_to_learn:
            name, what, remedy = trial.task.nothing_to_learn
            yield Fault(_task_place(study, name), what, remedy)
            return
    for task in _evaluated_tasks(study, layout):
        if task.nothing_to_learn:
            name, what, remedy = task.nothing_to_learn
            yield Fault(("evaluate", "task", name), f"evaluate.task: {what}", remedy)
            return


def _task_place(study: StudySchema, name: str) -> Place:
    """Where a study sets a setting of the task, or the task."""
    if f"task.{name}" in study.scientific:
        return ("scientific", f"task.{name}")
    if "task" in study.scientific:
        return ("scientific", "task")
    return ("fixed", "task", name) if name in study.fixed.get("task", {}) else ("fixed", "task")


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
        yield from _measure(n, law, _other_measures(study, layout, tasks))
        axis = axis_of(law.along)
        if axis.curve or law.along in numeric:
            continue
        place: Place = ("laws", n, "along")
        if axis.varied:
            if not any(path.startswith(axis.varied) for path in numeric):
                names = " or ".join(name.rstrip(".") for name in axis.varied if name not in BUDGET_PATHS)
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
        yield Fault(place, what, one_of(law.along, [*numeric, *LawAxis.choices()]))


def _measure(n: int, law: LawSpec, others: Iterable[str]) -> Iterator[Fault]:
    """A law is of an error, of a milestone, or of one of the other measures of the study."""
    curve = axis_of(law.along).curve
    known = dict.fromkeys(ERRORS if curve else (*ERRORS, *MILESTONES))
    if not curve and law.of not in known:
        known |= dict.fromkeys(others)
    if law.of not in known:
        what = f"a law along {law.along} is of {law.of!r}, which is not measured there"
        yield Fault(("laws", n, "of"), what, one_of(law.of, known))


MEASURED = (
    "error",
    "error_last",
    "raw_error",
    "excess",
    "regret",
    "regret_sem",
    "regret_last",
    "regret_last_sem",
)
"""Measures of every trial."""


def _further_measures(study: StudySchema, tasks: Iterable[Task]) -> Iterator[Fault]:
    """Every further measure is tried on two prompts of every task."""
    names = study.evaluate.names
    if not names:
        return
    taken = {*MEASURED, *_task_measures(tasks)}
    for n, (name, text) in enumerate(zip(names, study.evaluate.measures, strict=True)):
        place = ("evaluate", "measures", n)
        if name in taken or names.count(name) > 1:
            yield Fault(place, f"there is a measure {name} already", "give the function another name")
            continue
        alone = study.evaluate.model_copy(update={"measures": (text,)})
        for task in tasks:
            batch = task.sample(2, stream("problem"))
            try:
                values = alone.further_measures(task, task.blank(batch)[None], batch)[name]
                shape = tuple(values.shape)
            except Exception as problem:
                what = f"{name} fails on {task.kind} ({type(problem).__name__}: {str(problem)[:200]})"
                yield Fault(place, what, "write a function of task, prediction and batch")
                break
            if shape != (1, 2):
                what = f"{name} gives values of shape {shape} for 1 step and 2 prompts"
                yield Fault(place, what, "return one number per step and prompt, [*steps, batch]")
                break


def _other_measures(study: StudySchema, layout: Layout, tasks: Iterable[Task]) -> Iterator[str]:
    """The names of the measures of the tasks, of the file, and of the comparison with solvers in training."""
    yield from _task_measures(tasks)
    yield from study.evaluate.names
    for trial in layout.trials.values():
        yield from trial.similarity_measures


def _task_measures(tasks: Iterable[Task]) -> Iterator[str]:
    """The names of the tasks' own measures."""
    for task in tasks:
        batch = task.sample(1, stream("problem"))
        yield from task.measures(task.blank(batch)[None], batch)
        yield from (*task.probe_names, *task.outcome_names)


def _theory(n: int, law: LawSpec, study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """A bound must apply to at least one cell. The other cells get no theory."""
    if law.theory is None:
        return
    given = {name: value for name, value in law.theory.items() if name != "kind"}
    reasons = list[str]()
    for trial in layout.trials.values():
        try:
            posed = {"task": _evaluated_task(study, trial.task).model_dump(mode="json")}
            bound = Bound.fill(law.theory["kind"], given, dict(leaves(trial.settings | posed)))
            yield from coercions(given, bound, ("laws", n, "theory"))
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
            posed = study.evaluate.posed(trial.task)
        except ValidationError as problem:
            for fault in validation_faults(problem, Task, {"kind": trial.task.kind} | task):
                yield fault._replace(place=("evaluate", "task", *fault.place))
            return
        except ValueError as problem:
            yield Fault.from_text(("evaluate", "task"), problem, "evaluate.task: ", "change it")
            return
        if wrong := list(coercions(task, posed, ("evaluate", "task"))):
            yield from wrong
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


def _equal_cost(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """Trials with a budget cannot be compared at equal steps, or by their FLOPs."""
    for key, space in layout.spaces.items():
        steps = {trial.training.steps for trial in layout.corners[key]}
        budget = layout.trials[key].training.budget
        if budget and space and study.scheduler.prunes and len(steps) > 1:
            what = (
                f"{study.scheduler.kind} compares trials at equal steps, but training.{budget} gives the trials of a "
                f"cell {min(steps):,} to {max(steps):,} steps"
            )
            remedy = "write scheduler: {kind: none}, or tune no setting that changes the cost of a step"
            yield Fault(("scheduler",), what, remedy)
            return
        if budget and "flops" in study.search.objectives:
            what = f"search.objectives has flops, but training.{budget} gives every trial the same budget"
            yield Fault(("search", "objectives"), what, "write objectives: [error], or training.steps")
            return
