"""`loopscale plan`: the cost of a study before anything is spent."""

from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StudyArgument,
    WorkersOption,
    check_rate,
    parse_assignments,
)
from loopscale.cli.output import (
    format_bytes,
    format_duration,
    format_value,
    plural,
    say,
    show_json,
    show_table,
)

if TYPE_CHECKING:  # see loopscale.cli
    from loopscale.studies.plan import CellPlan, Offer, StudyPlan

CELLS_LISTED = 40
"""--json has all cells."""


def command(
    study: StudyArgument,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="FLOP/s of one trial, such as 2e12. [dim]Default: measured here[/dim]"),
    ] = None,
    workers: WorkersOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="Plan for a cluster, with its workers and its prices."
        ),
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print cells, trials, parameters, exact FLOPs, memory and time, here or at a given rate.

    [bold]Example[/bold]  loopscale plan algoformer/figure3 --rate 5e12 --workers 4 --cluster kuberay
    """
    changes = parse_assignments(overrides)
    check_rate(rate)
    from loopscale.runner.machine import local_workers
    from loopscale.studies.plan import plan_study
    from loopscale.studies.spec import Study

    loaded = Study.load(study, changes)
    offer, cluster_workers = _offer(cluster) if cluster else (None, None)
    planned = plan_study(loaded, rate, workers or cluster_workers or local_workers(loaded.resources), offer)
    if as_json:
        show_json(planned.document())
    else:
        _show(planned)


def _offer(cluster: str) -> "tuple[Offer, int | None]":
    """The cluster's prices and its number of workers. Raises Mistakes."""
    from loopscale.cluster.files import load_cluster
    from loopscale.studies.plan import Offer

    name, settings = load_cluster(cluster)
    if not (prices := settings.prices):
        return Offer(name, gpu_memory=settings.gpu_memory), settings.workers
    offer = Offer(name, prices.core_hour, prices.gpu_hour, prices.currency, settings.gpu_memory)
    return offer, settings.workers


def _show(plan: "StudyPlan") -> None:
    say(f"{plan.study}: {plan.question}")
    columns = [
        "cell",
        "tuning",
        "replicates",
        "steps",
        "parameters",
        "FLOPs a trial",
        "memory",
        "time a trial",
    ]
    show_table(columns, map(_row, plan.cells[:CELLS_LISTED]))
    if len(plan.cells) > CELLS_LISTED:
        say(f"and {len(plan.cells) - CELLS_LISTED} more cells")
    rates = ", ".join(f"{kind} {rate:.3g}" for kind, rate in plan.rate.items())
    gpus = f", {_numbers(plan.gpu_hours)} GPU-hours" if plan.gpu_hours[1] else ""
    beside = f", and trials side by side ({plan.slow_down:.2f} of alone)" if plan.slow_down > 1 else ""
    several = f", each judged at 5 % / {plan.claims}, because they are one family" if plan.claims > 1 else ""
    for line in (
        f"{plural(plan.claims, 'claim')}{several}; {plural(plan.laws, 'law')}",
        f"{plan.trials:,} trials in {len(plan.cells):,} cells: {plan.tuning:,} to tune, "
        f"{plan.replicates:,} replicates; {plan.baselines:,} baselines",
        f"{_numbers(plan.flops)} FLOPs without pruning, {_numbers(plan.flops_expected)} expected",
        f"memory {format_bytes(plan.memory_bytes)} at once, checkpoints {format_bytes(plan.checkpoint_bytes)}",
        f"FLOP/s of one trial, {plan.rate_source}: {rates}",
        f"{_durations(plan.hours, 3600)} with {plan.workers} at a time: {_numbers(plan.core_hours)} core-hours{gpus}",
        f"the hours include start-up, validation and evaluation{beside}; they do not include baselines",
    ):
        say(line)
    if plan.cost:
        say(f"cost on {plan.cluster}: {_numbers((plan.cost.low, plan.cost.high))} {plan.cost.currency}")
    elif plan.cluster:
        say(f"cost: the file of {plan.cluster} has no prices; write them as prices: {{core_hour: 0.04}}")
    if plan.budget:
        limits = (f"{value:g} {name.replace('_', '-')}" for name, value in plan.budget.items())
        say(f"budget: {', '.join(limits)}")
    for warning in plan.warnings:
        say(f"note: {warning}")


def _row(cell: "CellPlan") -> list[object]:
    parameters = _range(*(f"{value:,}" for value in cell.parameters))
    steps = _range(*(f"{value:,}" for value in cell.steps))
    memory, seconds = format_bytes(cell.memory_bytes), _durations(cell.seconds)
    sizes = [steps, parameters, _numbers(cell.flops), memory, seconds]
    return [cell.label, cell.tuning, cell.replicates, *sizes]


def _numbers(ends: tuple[float, float]) -> str:
    return _range(*(format_value(float(end)) for end in ends))


def _durations(ends: tuple[float, float], unit: float = 1) -> str:
    """`unit` in seconds."""
    return _range(*(format_duration(unit * end) for end in ends))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} .. {high}"
