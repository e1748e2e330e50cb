"""`loopscale simulate`: how a study would go on a cluster, from learning curves that are there already."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption, SetOption, StudyArgument, assignments
from loopscale.cli.output import clock, counted, say, show_json
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.cluster.base import Prices
    from loopscale.runner.simulation.forecast import Forecast
    from loopscale.runner.simulation.simulate import SimulatedCluster
    from loopscale.studies.spec import Study

BARS = " ▁▂▃▄▅▆▇█"


def command(
    study: StudyArgument,
    curves: Annotated[
        str | None,
        typer.Option(
            "--curves",
            metavar="SOURCE",
            help="A store, or a folder of `loopscale export`. [dim]Default: made up[/dim]",
        ),
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", help="GPUs; each takes 1 / resources.gpu trials.")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Trials at a time.")] = None,
    start_up: Annotated[
        float, typer.Option("--start-up", min=0, help="Seconds until a trial trains.")
    ] = 10.0,
    faults: Annotated[float, typer.Option("--faults", min=0, help="Deaths of a worker per hour.")] = 0.0,
    kill: Annotated[
        int, typer.Option("--kill", min=0, help="Let the driver die so often, and compare what was decided.")
    ] = 0,
    rate: Annotated[
        float | None, typer.Option("--rate", help="FLOP/s of a trial, instead of recorded times.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Count cost at its prices.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of faults, kills and lost notes.")] = 0,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay learning curves through the real search and pruning, in simulated time: schedule, use, cost, savings.

    [bold]Example[/bold]  loopscale simulate algoformer/figure3 --curves .loopscale --gpus 1000 --kill 3
    """
    changes = assignments(overrides)
    if rate is not None and not 0 < rate < float("inf"):
        raise Wrong(f"--rate {rate} is no speed; give FLOP/s above 0, such as 2e12")
    from loopscale.runner.simulation.curves import LearningCurves, read_recorded_trials
    from loopscale.runner.simulation.forecast import forecast
    from loopscale.runner.simulation.simulate import SimulatedCluster
    from loopscale.studies.spec import Study

    found = Study.load(study, changes)
    prices = _prices(cluster) if cluster else None
    setting = SimulatedCluster(_slots(found, gpus, workers), start_up, faults, kill, seed)
    recorded = read_recorded_trials(curves) if curves else []
    if curves and not recorded:
        raise Wrong(f"{curves} holds no learning curves yet; name another source, or leave --curves out")
    made = forecast(found, LearningCurves(found, recorded, rate), setting)
    if as_json:
        cost = prices and {"low": _cost(made, prices), "currency": prices.currency}
        show_json(made.document() | {"cost": cost and cost["low"], "currency": cost and cost["currency"]})
    else:
        _show(found, made, setting, prices, given=rate is not None)


def _slots(study: "Study", gpus: float | None, workers: int | None) -> int:
    if (gpus is None) == (workers is None):
        raise Wrong("say how large the cluster is; give --gpus or --workers, one of the two")
    if workers:
        return workers
    each = study.resources.gpu or 1.0
    slots = int((gpus or 0) / each + 1e-9)
    if slots < 1:
        raise Wrong(f"--gpus {gpus:g} have no room for a trial of {each:g} GPU; give more")
    return slots


def _prices(cluster: str) -> "Prices":
    from loopscale.cluster.find import find

    name, found = find(cluster)
    if found.prices is None:
        raise Wrong(
            f"the cluster {name} has no prices; write prices: {{gpu_hour: ..., core_hour: ...}} in its file"
        )
    return found.prices


def _cost(made: "Forecast", prices: "Prices") -> float:
    return prices.cost(made.core_hours, made.gpu_hours)


def _show(
    study: "Study", made: "Forecast", setting: "SimulatedCluster", prices: "Prices | None", given: bool
) -> None:
    say(f"{study.name}, simulated: {counted(made.trials, 'trial')} in {counted(made.cells, 'cell')}, "
        f"{made.slots:,} at a time")  # fmt: skip
    say(_origin(made.curves))
    if made.rate:
        say(f"times: counted from FLOPs at {made.rate:.3g} FLOP/s a trial, not measured"
            + ("" if given else "; say --rate, as `loopscale plan` measures it"))  # fmt: skip
    say("outcomes: " + ", ".join(f"{count:,} {name}" for name, count in sorted(made.outcomes.items())))
    say(f"{clock(3600 * made.hours)} from start to end, the last {clock(3600 * made.tail_hours)} of it running out of "
        f"trials; {made.utilisation:.0%} of the slots in use")  # fmt: skip
    say("use over time: |" + "".join(BARS[round(share * (len(BARS) - 1))] for share in made.timeline) + "|")
    say(f"{made.trial_hours:,.4g} trial-hours, {made.trial_hours_unpruned:,.4g} if all were trained to the end: "
        f"{made.saved:.0%} saved")  # fmt: skip
    if setting.faults:
        say(f"{counted(made.workers_lost, 'worker')} died; what they repeated is counted")
    say(f"the point chosen is worse than the best one tried by {made.regret:.1%} in the mean over cells, "
        f"{made.regret_worst:.1%} at worst")  # fmt: skip
    if prices:
        say(f"cost: {_cost(made, prices):,.4g} {prices.currency} for {made.gpu_hours:,.4g} GPU-hours and "
            f"{made.core_hours:,.4g} core-hours")  # fmt: skip
    if made.resumed:
        _show_resumed(made.resumed)


def _origin(counts: dict[str, int]) -> str:
    words = {
        "exact": "as recorded", "nearest": "of the nearest recorded trial", "surrogate": "MADE UP, from no record",
    }  # fmt: skip
    return "curves: " + ", ".join(
        f"{counts[name]:,} {text}" for name, text in words.items() if counts.get(name)
    )


def _show_resumed(resumed: Any) -> None:
    differ = resumed.trials - resumed.same
    said = f"driver killed {counted(resumed.deaths, 'time')} and resumed: {resumed.same:,} of {resumed.trials:,} "
    said += "trials with the same point, outcome, last step and rungs"
    if resumed.promised:
        say(
            said
            + ("; promised, and kept" if not differ else "; THE SAME WAS PROMISED FOR ALL, this is a bug")
        )
    else:
        say(
            said
            + "; with several at a time and this search or pruning the order of results matters, and may differ"
        )
