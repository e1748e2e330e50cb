"""`loopscale simulate`: the course of a study on a cluster, computed from recorded learning curves."""

from collections.abc import Sequence
from typing import Annotated

import typer

from loopscale.cli.options import JsonOption, SetOption, StudyArgument, check_rate, parse_assignments
from loopscale.cli.output import format_duration, plural, say, show_json
from loopscale.interface import types

BARS = " ▁▂▃▄▅▆▇█"
ORIGINS = {
    "exact": "as recorded",
    "nearest": "of the nearest recorded trial",
    "surrogate": "MADE UP, from no record",
}


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
        float | None, typer.Option("--gpus", help="GPUs. Each GPU takes 1 / resources.gpu trials.")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Trials at a time.")] = None,
    start_up: Annotated[
        float, typer.Option("--start-up", min=0, help="Seconds before a trial trains.")
    ] = 10.0,
    faults: Annotated[float, typer.Option("--faults", min=0, help="Worker deaths per hour.")] = 0.0,
    kill: Annotated[
        int, typer.Option("--kill", min=0, help="Kill the driver so often, and compare the decisions.")
    ] = 0,
    rate: Annotated[
        float | None, typer.Option("--rate", help="FLOP/s of a trial, instead of recorded times.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="Compute the cost at the cluster's prices."),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            "--noise",
            min=0,
            help="Of `until: decided`: the sd of the log error between replicates. [dim]Default: as recorded[/dim]",
        ),
    ] = None,
    courses: Annotated[
        int,
        typer.Option("--courses", min=1, help="Of `until: decided`: simulated courses of each assumption."),
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", help="The seed of faults, kills and lost notes.")] = 0,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay learning curves through the real search and pruning, in simulated time.

    Print schedule, use of the slots, cost, and savings by pruning.

    [bold]Example[/bold]  loopscale simulate algoformer/figure3 --curves .loopscale --gpus 1000 --kill 3
    """
    changes = parse_assignments(overrides)
    check_rate(rate)
    from loopscale.interface import simulating
    from loopscale.studies.spec import Study

    done = simulating.simulate(
        Study.load(study, changes),
        curves,
        workers=workers,
        gpus=gpus,
        start_up=start_up,
        faults=faults,
        kill=kill,
        rate=rate,
        cluster=cluster,
        noise=noise,
        courses=courses,
        seed=seed,
    )
    if as_json:
        show_json(done.document())
        return
    result = done.forecast
    _show(done.study, result, done.cluster, measured=rate is None)
    if done.currency:
        say(
            f"cost: {done.cost:,.4g} {done.currency} for {result.gpu_hours:,.4g} GPU-hours and "
            f"{result.core_hours:,.4g} core-hours"
        )
    if result.resumed:
        _show_resumed(result)
    if done.until:
        _show_until(done.until)


def _show(
    study: "types.Study", result: "types.Forecast", setting: "types.SimulatedCluster", measured: bool
) -> None:
    trials, cells = plural(result.trials, "trial"), plural(result.cells, "cell")
    origins = (f"{result.curves[name]:,} {text}" for name, text in ORIGINS.items() if result.curves.get(name))
    total, tail = format_duration(3600 * result.hours), format_duration(3600 * result.tail_hours)
    say(f"{study.name}, simulated: {trials} in {cells}, {result.slots:,} at a time")
    say(f"curves: {', '.join(origins)}")
    if result.rate:
        hint = "; give --rate, as `loopscale plan` measures it" if measured else ""
        say(f"times: computed from FLOPs at {result.rate:.3g} FLOP/s a trial, not measured{hint}")
    say("outcomes: " + ", ".join(f"{count:,} {name}" for name, count in sorted(result.outcomes.items())))
    say(
        f"{total} from start to end, the last {tail} with too few trials for all slots; "
        f"{result.utilisation:.0%} of the slots in use"
    )
    say("use over time: |" + "".join(BARS[round(share * (len(BARS) - 1))] for share in result.timeline) + "|")
    say(
        f"{result.trial_hours:,.4g} trial-hours, {result.trial_hours_unpruned:,.4g} without pruning: "
        f"{result.saved:.0%} saved"
    )
    if setting.faults:
        say(f"{plural(result.workers_lost, 'worker')} died; their repeated work is counted")
    say(
        f"the chosen point is worse than the best tried point by {result.regret:.1%} in the mean over cells, "
        f"{result.regret_worst:.1%} at worst"
    )


def _show_until(forecasts: "Sequence[types.UntilForecast]") -> None:
    """What the looks add: the lines above are those of a study that ends after its first look."""
    courses, sd = forecasts[0].courses, forecasts[0].sd
    questions = round(sum(forecasts[0].words.values()))
    say(
        f"until decided: {plural(courses, 'course')} of each line, with a noise of {sd:.3g} between replicates "
        f"(sd of log error)"
    )
    for each in forecasts:
        effect = "means as recorded" if each.effect is None else f"effect {each.effect:g}"
        if each.share is not None:
            effect += f", laws with {each.share:g} of theory's rate"
        if each.learns_at > 1:
            effect += f", nets learn at {each.learns_at} times the steps"
        words = ", ".join(f"{word} {number:.2g}" for word, number in sorted(each.words.items()))
        say(
            f"  {effect}: {each.trials:,.0f} trials (at most {each.most_trials:,}), {each.core_hours:,.4g} core-hours; "
            f"questions end at {each.replicates:.1f} replicates; of {plural(questions, 'question')}: {words}, "
            f"{each.steps.get('futile', 0):.2g} futile"
        )


def _show_resumed(result: "types.Forecast") -> None:
    resumed = result.resumed
    assert resumed
    text = (
        f"driver killed {plural(resumed.deaths, 'time')} and resumed: {resumed.same:,} of {resumed.trials:,} trials "
        "with the same point, outcome, last step and rungs"
    )
    if not resumed.promised:
        text += "; with several trials at a time, this search or pruning depends on the order of results"
    elif resumed.same == resumed.trials:
        text += ", as promised"
    else:
        text += "; ALL WERE PROMISED, this is a bug"
    say(text)
