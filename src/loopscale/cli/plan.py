"""`loopscale plan`: what a study would cost, before anything is spent."""

from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import JsonOption, SetOption, StudyArgument, assignments
from loopscale.cli.output import clock, say, show_json, show_table, shown, size
from loopscale.cli.run import Workers, default_workers
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.studies.plan import CellPlan, Offer, StudyPlan

ROWS = 40
"""Cells listed; --json has them all."""


def command(
    study: StudyArgument,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="FLOP/s of one trial, such as 2e12. [dim]Default: measured here[/dim]"),
    ] = None,
    workers: Workers = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="Plan for a cluster: its workers, and the cost at its prices."
        ),
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cells, trials, parameters, exact FLOPs, memory, and the time that it takes here or at a given rate.

    [bold]Example[/bold]  loopscale plan algoformer/figure3 --rate 5e12 --workers 4 --cluster kuberay
    """
    changes = assignments(overrides)
    if rate is not None and not 0 < rate < float("inf"):
        raise Wrong(f"--rate {rate} is no speed; give FLOP/s above 0, such as 2e12")
    from loopscale.studies.plan import plan_study
    from loopscale.studies.spec import Study

    found = Study.load(study, changes)
    offer, theirs = _offer(cluster) if cluster else (None, None)
    planned = plan_study(found, rate, workers or theirs or default_workers(found), offer)
    if as_json:
        show_json(planned.document())
    else:
        _show(planned)


def _offer(cluster: str) -> "tuple[Offer, int | None]":
    """What the cluster's file says of its prices, and how many trials at a time. Raises Mistakes."""
    from loopscale.cluster.find import find
    from loopscale.studies.plan import Offer

    name, found = find(cluster)
    if not (prices := found.prices):
        return Offer(name, gpu_memory=found.gpu_memory), found.workers
    return Offer(name, prices.core_hour, prices.gpu_hour, prices.currency, found.gpu_memory), found.workers


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
    show_table(columns, map(_row, plan.cells[:ROWS]))
    if len(plan.cells) > ROWS:
        say(f"and {len(plan.cells) - ROWS} more cells")
    rates = ", ".join(f"{kind} {rate:.3g}" for kind, rate in plan.rate.items())
    gpus = f", {_span(plan.gpu_hours)} GPU-hours" if plan.gpu_hours[1] else ""
    for line in (
        f"{plan.trials:,} trials in {len(plan.cells):,} cells: {plan.tuning:,} to tune, "
        f"{plan.replicates:,} replicates; {plan.baselines:,} baselines",
        f"{_span(plan.flops)} FLOPs if nothing is pruned, {_span(plan.flops_expected)} expected",
        f"memory {size(plan.memory_bytes)} at once, checkpoints {size(plan.checkpoint_bytes)}",
        f"FLOP/s of one trial, {plan.rate_source}: {rates}",
        f"{_times(plan.hours)} with {plan.workers} at a time: {_span(plan.core_hours)} core-hours{gpus}",
    ):
        say(line)
    if plan.cost:
        say(f"cost on {plan.cluster}: {_span((plan.cost.low, plan.cost.high))} {plan.cost.currency}")
    elif plan.cluster:
        say(f"cost: the file of {plan.cluster} says no prices; write them as prices: {{core_hour: 0.04}}")
    if plan.budget:
        say(
            "budget: "
            + ", ".join(f"{value:g} {name.replace('_', '-')}" for name, value in plan.budget.items())
        )
    for warning in plan.warnings:
        say(f"note: {warning}")


def _row(cell: "CellPlan") -> list[object]:
    seconds = _between(clock(cell.seconds[0]), clock(cell.seconds[1]))
    parameters = _between(*(f"{value:,}" for value in cell.parameters))
    steps = _between(*(f"{value:,}" for value in cell.steps))
    cost = [steps, parameters, _span(cell.flops), size(cell.memory_bytes), seconds]
    return [cell.label, cell.tuning, cell.replicates, *cost]


def _span(span: tuple[float, float]) -> str:
    return _between(*(shown(float(end)) for end in span))


def _times(hours: tuple[float, float]) -> str:
    return _between(*(clock(3600 * end) for end in hours))


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} .. {high}"
