"""What the claims of a study require of its cells, baselines and evaluation."""

from collections.abc import Iterator, Sequence

from loopscale.studies.cells import Cell, Layout
from loopscale.studies.claims import CellSide, ClaimSpec, SolverSide
from loopscale.studies.mistakes import Fault, Place, one_of, quoted
from loopscale.studies.schema import StudySchema, solving
from loopscale.studies.trees import leaves


def claim_faults(study: StudySchema, layout: Layout, known: Sequence[str]) -> Iterator[Fault]:
    """The faults of all claims. `known` are the measures of the study's trials."""
    texts: dict[str, int] = {}
    for n, claim in enumerate(study.claims):
        if claim.text in texts:
            what = f"claim {n + 1} has the same text as claim {texts[claim.text] + 1}"
            yield Fault(("claims", n, "text"), what, "change the text, or remove one of the two")
        texts.setdefault(claim.text, n)
        if claim.of not in known:
            what = f"a claim is of {claim.of!r}, which is not measured"
            yield Fault(("claims", n, "of"), what, one_of(claim.of, known))
        for name, side in zip(("first", "second"), claim.sides, strict=True):
            place: Place = ("claims", n, name)
            if isinstance(side, CellSide):
                yield from _cell(place, side, study, layout)
            else:
                yield from _solver(place, side, claim, study, layout)


def _cell(place: Place, side: CellSide, study: StudySchema, layout: Layout) -> Iterator[Fault]:
    varied = list(dict.fromkeys(path for cell in layout.cells for path, _ in leaves(cell.values)))
    for path in side.settings.keys() - set(varied):
        what = f"a claim names {path}, which the study does not vary"
        yield Fault((*place, path), what, one_of(path, varied) if varied else "leave it out")
        return
    cells = [cell for cell in layout.cells if side.names(cell.values)]
    if len(cells) != 1:
        what = f"a claim names {quoted(side.settings)}, which are {len(cells)} cells"
        yield Fault(place, what, _remedy(side, cells, layout))
        return
    trial = layout.trials[cells[0].key]
    most = trial.model.depth or study.evaluate.loops
    if (side.loop or 0) > most:
        what = f"a claim is about loop {side.loop} of {cells[0].label or 'the only cell'}"
        reason = f"the net has {most} layers" if trial.model.depth else f"evaluate.loops is {most}"
        yield Fault((*place, "loop"), what, f"write {most} or less, because {reason}")


def _remedy(side: CellSide, cells: Sequence[Cell], layout: Layout) -> str:
    """The setting that would name one cell."""
    for path, value in side.settings.items():
        values = dict.fromkeys(str(dict(leaves(cell.values)).get(path)) for cell in layout.cells)
        if str(value) not in values:
            return f"for {path} {one_of(value, values)}"
    if not cells:
        return "no cell has all these settings together; change one of them"
    differ: dict[str, set[str]] = {}
    for cell in cells:
        for path, value in leaves(cell.values):
            differ.setdefault(path, set()).add(str(value))
    missing = [path for path, values in differ.items() if len(values) > 1]
    return f"also give {' or '.join(missing)}"


def _solver(
    place: Place, side: SolverSide, claim: ClaimSpec, study: StudySchema, layout: Layout
) -> Iterator[Fault]:
    place = (*place, "solver")
    first, _ = claim.sides
    task = next((layout.trials[cell.key].task for cell in layout.cells if first.names(cell.values)), None)
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
        what = f"a claim names the solver {kind}, which {len(matching)} baselines have"
        yield Fault(place, what, f"write solver: {{kind: {kind}, {differ[0]}: ...}}")
    if (side.step or 0) > study.evaluate.loops:
        what = f"a claim is about step {side.step} of {kind}"
        most = study.evaluate.loops
        yield Fault((*place[:-1], "step"), what, f"write {most} or less, because evaluate.loops is {most}")
