"""What the claims of a study require of its cells, baselines and evaluation."""

from collections.abc import Iterator, Sequence

from loopscale.core.config import leaves, same_value
from loopscale.notation.mistakes import Fault, Place, one_of, quoted
from loopscale.questions.claim import CellSide, ClaimSpec, SolverSide
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.studies.cells import Cell, Layout
from loopscale.studies.schema import StudySchema, solving
from loopscale.tasks.base import Task


def claim_faults(
    study: StudySchema, layout: Layout, known: Sequence[str], outcomes: Sequence[str]
) -> Iterator[Fault]:
    """The faults of all claims. `known` are the measures of the study's trials, `outcomes` those of acting."""
    texts: dict[str, int] = {}
    for n, claim in enumerate(study.claims):
        if claim.text in texts:
            what = f"claim {n + 1} has the same text as claim {texts[claim.text] + 1}"
            yield Fault(("claims", n, "text"), what, "change the text, or remove one of the two")
        texts.setdefault(claim.text, n)
        if claim.of not in known:
            what = f"a claim is of {claim.of!r}, which is not measured"
            yield Fault(("claims", n, "of"), what, one_of(claim.of, known))
        yield from _over(n, claim, layout)
        for name, side in zip(("first", "second"), claim.sides, strict=True):
            place: Place = ("claims", n, name)
            if isinstance(side, CellSide):
                yield from _cell(place, side, claim, study, layout)
            else:
                if claim.of not in (recorded := (*CURVE_MEASURES, *outcomes)):
                    what = f"{claim.of} is not recorded for algorithms"
                    yield Fault(("claims", n), what, one_of(claim.of, recorded))
                yield from _solver(place, side, claim, study, layout)
        yield from _same_run(n, claim, layout)


def _over(n: int, claim: ClaimSpec, layout: Layout) -> Iterator[Fault]:
    """The settings of `over` must vary, and both sides must have the same values of them."""
    place: Place = ("claims", n, "over")
    varied = _varied(layout)
    for path in claim.over:
        if path not in varied:
            yield Fault(place, f"a claim is over {path}, which the study does not vary", one_of(path, varied))
            return
    sides = [side for side in claim.sides if isinstance(side, CellSide)]
    found = [{claim.place(cell) for cell in layout.cells if side.names(cell.values)} for side in sides]
    if claim.over and all(found) and (unpaired := sorted(found[0] ^ found[-1])):
        names = ("second", "first") if unpaired[0] in found[0] else ("first", "second")
        where = _words(claim, unpaired[0])
        what = f"the {names[0]} side of a claim has no cell with {where}, and the {names[1]} side has one"
        yield Fault(place, what, "give both sides the same cells, or pair over other settings")


def _words(claim: ClaimSpec, place: Sequence[str]) -> str:
    """The values of `over` in words."""
    return ", ".join(f"{path}={value}" for path, value in zip(claim.over, place, strict=True))


def _varied(layout: Layout) -> list[str]:
    """The settings that differ between cells."""
    return list(dict.fromkeys(path for cell in layout.cells for path, _ in leaves(cell.values)))


def _same_run(n: int, claim: ClaimSpec, layout: Layout) -> Iterator[Fault]:
    """Both sides may be the same cell after the same loop, because a side without a loop is after loop T."""
    for pair in claim.pairs(layout.cells):
        runs = {
            (cell.label, side.loop or layout.trials[cell.key].steps_per_prompt)
            for cell, side in zip(pair, claim.sides, strict=False)
            if isinstance(side, CellSide)
        }
        if len(pair) == 2 and len(runs) == 1:
            label, loop = runs.pop()
            what = f"both sides are loop {loop} of {label or 'the only cell'}"
            yield Fault(("claims", n), what, "name another cell, or another number of loops")
            return


def _cell(
    place: Place, side: CellSide, claim: ClaimSpec, study: StudySchema, layout: Layout
) -> Iterator[Fault]:
    varied = _varied(layout)
    for path in side.settings.keys() - set(varied):
        what = f"a claim names {path}, which the study does not vary"
        yield Fault((*place, path), what, one_of(path, varied) if varied else "leave it out")
        return
    if set(claim.over) - set(varied):  # reported under over
        return
    cells = [cell for cell in layout.cells if side.names(cell.values)]
    alike: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        alike.setdefault(claim.place(cell), []).append(cell)
    of_place, crowded = max(alike.items(), key=lambda item: len(item[1]), default=((), cells))
    if len(crowded) != 1:
        where = f" with {_words(claim, of_place)}" if claim.over and crowded else ""
        what = f"a claim names {quoted(side.settings)}, which are {len(crowded)} cells{where}"
        yield Fault(place, what, _remedy(side, crowded, layout))
        return
    for cell in cells:
        trial = layout.trials[cell.key]
        most = trial.model.depth or study.evaluate.loops
        if (side.loop or 0) > most:
            what = f"a claim is about loop {side.loop} of {cell.label or 'the only cell'}"
            reason = f"the net has {most} layers" if trial.model.depth else f"evaluate.loops is {most}"
            yield Fault((*place, "loop"), what, f"write {most} or less, because {reason}")
            return


def _remedy(side: CellSide, cells: Sequence[Cell], layout: Layout) -> str:
    """The setting that would name one cell."""
    for path, value in side.settings.items():
        values = [dict(leaves(cell.values)).get(path) for cell in layout.cells]
        if not any(same_value(value, each) for each in values):
            return f"for {path} {one_of(value, dict.fromkeys(map(str, values)))}"
    if not cells:
        return "no cell has all these settings together; change one of them"
    differ: dict[str, set[str]] = {}
    for cell in cells:
        for path, value in leaves(cell.values):
            differ.setdefault(path, set()).add(str(value))
    missing = [path for path, values in differ.items() if len(values) > 1]
    return (
        f"also give {' or '.join(missing)}, or pair the cells of both sides with over: [{', '.join(missing)}]"
    )


def _solver(
    place: Place, side: SolverSide, claim: ClaimSpec, study: StudySchema, layout: Layout
) -> Iterator[Fault]:
    first, _ = claim.sides
    tasks = [layout.trials[cell.key].task for cell in layout.cells if first.names(cell.values)]
    for task in tasks or [None]:
        if faults := list(_solver_of_task((*place, "solver"), side, task, study)):
            yield from faults
            break
    if (side.step or 0) > (most := study.evaluate.loops):
        what = f"a claim is about step {side.step} of {side.settings['kind']}"
        yield Fault((*place, "step"), what, f"write {most} or less, because evaluate.loops is {most}")


def _solver_of_task(place: Place, side: SolverSide, task: Task | None, study: StudySchema) -> Iterator[Fault]:
    solvers = study.baselines
    if task is not None:
        try:
            task = study.evaluate.posed(task)
        except ValueError:  # reported under evaluate
            return
        solvers = solving(solvers, task)
    matching = [
        solver
        for solver in solvers
        if side.names(solver.model_dump(mode="json")) and side.settings.keys() <= solver.model_dump().keys()
    ]
    kind = side.settings["kind"]
    if not matching:
        kinds = dict.fromkeys(solver.kind for solver in solvers)
        where = f" that solves {task.kind}" if task else ""
        what = f"a claim names the solver {quoted(side.settings if len(side.settings) > 1 else kind)}"
        remedy = f"name a baseline of the study{where}"
        yield Fault(
            place, what, f"{remedy}: {one_of(kind, kinds)}" if kinds else f"write baselines: [{kind}]"
        )
    elif len(matching) > 1:
        one, other, *_ = (solver.model_dump(mode="json") for solver in matching)
        differ = [name for name in one if one[name] != other[name]]
        if not differ:  # reported under baselines
            return
        what = f"a claim names the solver {kind}, which {len(matching)} baselines have"
        yield Fault(place, what, f"write solver: {{kind: {kind}, {differ[0]}: ...}}")
