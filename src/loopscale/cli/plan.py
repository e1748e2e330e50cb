"""`loopscale plan`: the cost of a study and the chances of its verdicts, before anything is spent."""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StoreOption,
    StudyArgument,
    TinyOption,
    WideOption,
    WorkersOption,
    check_rate,
    parse_assignments,
    store_place,
)
from loopscale.cli.output import (
    first_few,
    format_bytes,
    format_duration,
    format_value,
    plural,
    say,
    say_folded,
    show_json,
    show_table,
    show_verbatim,
)
from loopscale.interface import types

NOTES_LISTED, CELLS_LISTED = 5, 12
"""Without --full."""
CELLS_IN_FULL = 40
TASKS_LISTED = 8
"""--json has all cells and tasks."""
WIDTH = 100
"""Columns of sentences."""
NAME, SETTINGS = 38, 34
"""Columns of the name of a law or a claim, and of the settings of a task."""


def command(
    context: typer.Context,
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
    least_effect: Annotated[
        float | None,
        typer.Option(
            "--least-effect",
            min=0,
            max=1,
            help="Warn of an axis that changes the error of the best known algorithm by less than this part. "
            "[dim]Default: 0.1[/dim]",
        ),
    ] = None,
    resolved: Annotated[
        bool,
        typer.Option(
            "--resolved",
            help="Only print the study as YAML, merged with its base, and with the changes of --set and --tiny.",
        ),
    ] = False,
    overrides: SetOption = None,
    tiny: TinyOption = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also print memory, FLOPs, speed, reducible error and power, and every note."
        ),
    ] = False,
    wide: WideOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Print trials, hours and cells, and the first notes, here or at a given rate.

    With --full, also print exact FLOPs, memory, the reducible error and the power. The reducible error is the part of
    the error that a net can remove. The power is the chance of a verdict on each law and claim. The noise comes from
    earlier records of the study, or else from similar recorded studies.

    [bold]Example[/bold]  loopscale plan algoformer/figure3 --rate 5e12 --workers 4 --cluster kuberay
    """
    changes = parse_assignments(overrides)
    check_rate(rate)
    from loopscale.interface import planning
    from loopscale.notation.files import dump_yaml
    from loopscale.studies.spec import Study

    loaded = Study.load(study, changes)
    loaded = loaded.tiny if tiny else loaded
    if resolved:
        show_json(loaded.resolved) if as_json else show_verbatim(dump_yaml(loaded.resolved).rstrip())
        return
    planned = planning.plan(
        loaded,
        store_place(context, store, None).store,
        workers=workers,
        rate=rate,
        cluster=cluster,
        least_effect=least_effect,
    )
    if as_json:
        show_json(planned.document())
    else:
        _show(planned, full, wide)


def _show(plan: "types.StudyPlan", full: bool, wide: bool) -> None:
    say_folded(f"{plan.study}: {plan.question}")
    _show_cost(plan)
    notes = plan.warnings if full else plan.warnings[:NOTES_LISTED]
    for warning in notes:
        _say_wrapped(f"note: {warning}")
    for claim in (power for power in plan.power if power.kind == "claim"):
        say_folded(f"claim “{claim.question}” is judged as: {claim.statement}")
    _show_cells(plan, CELLS_IN_FULL if full else CELLS_LISTED, wide)
    if full:
        _show_sums(plan)
        _show_room(plan.room)
        if plan.power:
            _show_power(plan)
    else:
        left = len(plan.warnings) - len(notes)
        also = f"{plural(left, 'more note')}, " if left else ""
        say_folded(f"--full adds {also}memory, FLOPs, reducible error and power")


def _show_cells(plan: "types.StudyPlan", listed: int, wide: bool) -> None:
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
    leaving = [] if wide else [[columns.index(name)] for name in ("memory", "parameters", "FLOPs a trial")]
    show_table(columns, map(_row, plan.cells[:listed]), leaving=leaving)
    if len(plan.cells) > listed:
        say_folded(f"and {len(plan.cells) - listed} more cells")


def _show_cost(plan: "types.StudyPlan") -> None:
    """What the study takes: trials, hours, money, and what is recorded already."""
    gpus = f", {_amount(plan.gpu_hours, 'GPU')}" if plan.gpu_hours[1] else ""
    for line in (
        plan.counts,
        f"{_durations(plan.hours, 3600)} with {plan.workers} at a time: {_amount(plan.core_hours, 'core')}{gpus}",
    ):
        say_folded(line)
    if plan.left:
        done = max(plan.trials - plan.left.trials, 0)
        say_folded(
            f"recorded: {done:,} of {plan.trials:,} trials; left to train: {plan.left.trials:,}"
            + (f", {_durations(plan.left.hours, 3600)}" if plan.left.trials else "")
        )
    if plan.held:
        _show_held(plan, plan.held)
    if plan.cost:
        price = (
            f"{_numbers((plan.cost.low, plan.cost.high))} {plan.cost.currency} for the hours of the trials"
        )
        if held := plan.held_cost:
            price += f", {_numbers((held.low, held.high))} {held.currency} for the hours of the hosts"
        say_folded(f"cost on {plan.cluster}: {price}")
    elif plan.cluster:
        say_folded(
            f"cost: the file of {plan.cluster} has no prices; write them as prices: {{core_hour: 0.04}}"
        )
    if plan.until:
        _show_until(plan, plan.until)
    if plan.budget:
        limits = (f"{value:g} {name.replace('_', '-')}" for name, value in plan.budget.items())
        say_folded(f"budget: {', '.join(limits)}")


def _show_sums(plan: "types.StudyPlan") -> None:
    """FLOPs, memory, and the speed behind the hours."""
    rates = ", ".join(f"{kind} {rate:.3g}" for kind, rate in plan.rate.items())
    beside = f", and trials side by side ({plan.slow_down:.2f} of alone)" if plan.slow_down > 1 else ""
    several = f", each judged at 5 % / {plan.claims}, because they are one family" if plan.claims > 1 else ""
    for line in (
        f"{plural(plan.claims, 'claim')}{several}; {plural(plan.laws, 'law')}",
        f"{_numbers(plan.flops)} FLOPs without pruning, {_numbers(plan.flops_expected)} expected",
        f"memory {format_bytes(plan.memory_bytes)} at once, checkpoints {format_bytes(plan.checkpoint_bytes)}",
        f"FLOP/s of one trial, {plan.rate_source}: {rates}",
        f"the hours include start-up, validation and evaluation{beside}; they do not include baselines",
    ):
        say_folded(line)
    if plan.recorded:
        known = plan.recorded
        say_folded(
            f"{plural(known.trials, 'recorded trial')} of this study trained for "
            f"{format_duration(known.recorded_seconds)} on this processor; the plan gives them "
            f"{format_duration(known.planned_seconds)}"
        )


def _show_held(plan: "types.StudyPlan", held: "types.HeldHosts") -> None:
    gpus = f", {_amount(held.gpu_hours, 'GPU')}" if held.gpu_hours[1] else ""
    say_folded(
        f"{plan.cluster} holds up to {plural(held.hosts, 'host')} for {_durations(held.hours, 3600)}, "
        f"with the tail and idle hosts: {_amount(held.core_hours, 'core')}{gpus}"
    )


def _say_wrapped(text: str) -> None:
    """Print a sentence in lines of `WIDTH` columns."""
    for line in textwrap.wrap(
        text.replace(" %", "\0%"), WIDTH, subsequent_indent="  ", break_on_hyphens=False
    ):
        say(line.replace("\0", " "))


def _show_room(rooms: "types.StudyRoom") -> None:
    if not rooms.tasks:
        return  # a remark gives the reason
    samples = sorted({each.room.prompts for each in rooms.tasks})
    prompts = _range(str(samples[0]), str(samples[-1]))
    say()
    say_folded(
        f"reducible error: errors over the variance of the target, on {prompts} prompts; the best known algorithm\n"
        "after 1 step and after T steps, where T is the number of loops or layers of the nets"
    )
    ranked = any(each.room.rank is not None for each in rooms.tasks)
    columns = ["task", "cells", "least error", "fixed guess", "1 step", "T steps", "T"]
    columns += ["rank of Φ"] * ranked
    show_table(columns, (_room_row(each, ranked) for each in rooms.tasks[:TASKS_LISTED]))
    if len(rooms.tasks) > TASKS_LISTED:
        say(f"and {len(rooms.tasks) - TASKS_LISTED} more tasks")
    if len(rooms.tasks) < rooms.of:
        say_folded(f"{len(rooms.tasks)} of {rooms.of} tasks, at the ends and in the middle of each axis")
    if rooms.axes:
        say("how far each axis changes the error of the best known algorithm")
        columns = ["axis", "values", "mean error", "last query, in parts of its fixed guess"]
        show_table(columns, ([each.axis, each.values, *_effects(each)] for each in rooms.axes))


def _room_row(task: "types.TaskRoom", ranked: bool) -> list[object]:
    room, few, most = task.room, task.steps[0], task.steps[-1]
    least = (
        "unknown"
        if math.isnan(room.floor.mean)
        else f"{room.floor.mean:.3g} ±{room.floor_sem:.1g} ({room.how})"
    )
    deep = [f"{room.after[k].mean:.3g}" for k in (1, few, most)] if room.after else None
    return [
        _short(task.label, SETTINGS),
        len(task.cells),
        least,
        f"{room.ignorance.mean:.3g}",
        deep and deep[0],
        deep and _range(*deep[1:]),
        _range(str(few), str(most)),
        *([room.rank] if ranked else []),
    ]


def _effects(axis: "types.AxisRoom") -> list[str | None]:
    from loopscale.stats.power import percent

    if axis.effect is None or axis.effect_last is None:
        return ["in no algorithm", None]
    sampled = f" (±{percent(axis.effect_error)})" if axis.effect_error else ""
    return [percent(axis.effect) + sampled, percent(axis.effect_last)]


def _show_until(plan: "types.StudyPlan", until: "types.UntilPlan") -> None:
    looks = ", ".join(map(str, until.looks))
    say_folded(f"until decided: looks at {looks} replicates of {plural(until.cells, 'cell')} with a question")
    if until.steps[-1] > 1:
        longer = " or ".join(map(str, until.steps[1:]))
        say_folded(
            f"nets that have not learnt, or still fall, may be trained again at {longer} times the steps"
        )
    if until.reserve:
        cells = plural(until.reserve, "cell")
        say_folded(f"in reserve: {cells}, trained only if a law along {until.reserve_axis} stays open")
    gpus = f", {_amount(until.most_gpu_hours, 'GPU')}" if until.most_gpu_hours[1] else ""
    say(f"at least {plan.trials:,} trials and {_amount(plan.core_hours, 'core')}, and")
    hours = f"{_amount(until.most_core_hours, 'core')}{gpus}"
    say(f"at most {until.most_trials:,} trials and {hours} ({_durations(until.most_hours, 3600)})")
    say("loopscale simulate shows what to expect")


def _show_power(plan: "types.StudyPlan") -> None:
    from loopscale.foresight.power import ASSUMPTIONS, families

    asked = families(plan.power)
    replicates = plural(plan.until.looks[-1] if plan.until else plan.cells[0].replicates, "replicate")
    for kind in ("law", "claim"):
        rows: dict[tuple[str, ...], list[types.QuestionFamily]] = {}
        for family in asked:
            if family.judged and family.first.kind == kind:
                rows.setdefault(_power_row(family), []).append(family)
        if rows:
            say(f"power of the {kind}s: the chance of the right verdict with {replicates},")
            say(f"if {' / if '.join(ASSUMPTIONS[kind])}")
            show_table(
                [kind, "n", "learnt", "expected", "replicates for 80 % power"],
                (
                    [_short(same[0].first.name), sum(len(family.judged) for family in same), *row]
                    for row, same in rows.items()
                ),
            )
    for line in _power_lines(asked):
        _say_wrapped(line)


def _power_row(family: "types.QuestionFamily") -> tuple[str, ...]:
    judged = family.judged
    powers = [power.power for power in judged if power.power]
    learnt = [power.if_learnt for power in judged]
    return (
        _both([exact for exact, _ in learnt], [off for _, off in learnt]),
        _both([power.exact for power in judged], [power.off for power in judged]),
        f"{_needed([power.replicates_exact for power in powers])} / "
        f"{_needed([power.replicates_off for power in powers])}",
    )


def _power_lines(asked: "list[types.QuestionFamily]") -> Iterator[str]:
    """Sentences: the columns of the table, laws without a verdict, the expected learning, and the noise."""
    from loopscale.foresight.power import NO_THEORY

    if judged := [power for family in asked for power in family.judged]:
        yield (
            "n: laws or claims with this power. learnt: the power if all runs learn. expected: the power with the "
            "expected learning. The last column: replicates for a power of 80 % if all runs learn; – for no such number"
        )
        chances = _chances(power.all_learn for power in judged)
        yield f"the chance that all runs of a law or claim learn, as the verdict on a law demands: {chances}"
    unjudged: dict[str, list[str]] = {}
    for family in asked:
        reasons = Counter(power.because for power in family.powers if power.because)
        del reasons[NO_THEORY]  # a remark says so
        for reason, number in reasons.items():
            part = f" in {number} of {len(family.powers)} groups" if number < len(family.powers) else ""
            unjudged.setdefault(reason, []).append(f"{family.first.question}{part}")
    for reason, names in unjudged.items():
        yield f"power not computed, because {reason}: {first_few(names, separator='; ')}"
    powers = [power for family in asked for power in family.powers]
    yield from _learning_lines(powers)
    noises = {(power.noise.measure, power.noise.source): power.noise for power in powers}
    texts = [
        f"{noise.noise.total:.2g} {noise.measure} of {noise.source} ({plural(noise.runs, 'run')})"
        for noise in noises.values()
    ]
    yield f"noise between replicates, sd of the logarithm: {'; '.join(texts)}"


def _learning_lines(powers: "list[types.QuestionPower]") -> Iterator[str]:
    """One sentence for each task and model: the expected share of learnt runs, and the records behind the share."""

    groups: dict[tuple[object, ...], list[types.ExpectedLearning]] = {}
    for power in powers:
        for each in power.learning:
            records = (each.source, each.runs, each.emerged, each.studies, each.recorded_steps, each.own)
            groups.setdefault(records, []).append(each)
    for group in groups.values():
        first, shares = group[0], [each.share for each in group]
        steps = _counts(min(each.least_steps for each in group), max(each.most_steps for each in group))
        recorded = (
            f"{first.emerged} of {plural(first.runs, 'net')} with {_counts(*first.recorded_steps)} steps"
        )
        studies = "1 study" if first.studies == 1 else f"{first.studies} studies"
        own = f"{plural(first.own, 'net')} of this study, and on " if first.own else ""
        beyond = "".join(
            f"; {words}" for words in dict.fromkeys(w for each in group for w in each.extrapolations)
        )
        yield (
            f"expected to learn within {steps} steps: {_chances(shares)} of {first.source}. The share rests on "
            f"{own}{studies}, where {recorded} have learnt{beyond}"
        )


def _chances(chances: Iterable[float]) -> str:
    from loopscale.stats.power import percent

    ordered = [percent(chance) for chance in sorted(chances)]
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0].removesuffix(' %')} .. {ordered[-1]}"


def _both(exact: list[float], off: list[float]) -> str:
    """The ranges of two chances: `3..12 / 20..40 %`."""
    return f"{_chances(exact).removesuffix(' %')} / {_chances(off)}".replace(" .. ", "..")


def _counts(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _needed(counts: list[int | None]) -> str:
    known = sorted(count for count in counts if count)
    if not known:
        return "–"
    most = str(known[-1]) if len(known) == len(counts) else "–"
    return most if most == str(known[0]) else f"{known[0]}..{most}"


def _short(text: str, most: int = NAME) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _row(cell: "types.CellPlan") -> list[object]:
    parameters = _range(*(f"{value:,}" for value in cell.parameters))
    steps = _range(*(f"{value:,}" for value in cell.steps))
    memory, seconds = format_bytes(cell.memory_bytes), _durations(cell.seconds)
    sizes = [steps, parameters, _numbers(cell.flops), memory, seconds]
    return [cell.label, cell.tuning, cell.replicates, *sizes]


def _numbers(ends: tuple[float, float]) -> str:
    return _range(*(format_value(float(end)) for end in ends))


def _amount(hours: tuple[float, float], unit: str) -> str:
    """Core-hours or GPU-hours, in minutes below one hour."""
    if hours[1] < 1:
        return f"{_range(*(f'{60 * end:.2g}' for end in hours))} {unit}-minutes"
    return f"{_numbers(hours)} {unit}-hours"


def _durations(ends: tuple[float, float], unit: float = 1) -> str:
    """`unit` in seconds."""
    return _range(*(format_duration(unit * end) for end in ends))


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} .. {high}"
