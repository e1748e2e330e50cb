"""`loopscale predict`: a trained net, evaluated again on its own or another data condition."""

from typing import Annotated

import typer

from loopscale.cli.options import JsonOption, SetOption, StorageOption, StoreOption, assignments, opened
from loopscale.cli.output import counted, say, show_json, show_table
from loopscale.cli.wrong import Wrong


def command(
    context: typer.Context,
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="A trial's key, or as much of it as is unique.")
    ],
    overrides: SetOption = None,
    loops: Annotated[int | None, typer.Option("--loops", min=1, max=100_000, help="Loops to run.")] = None,
    prompts: Annotated[
        int, typer.Option("--prompts", min=1, max=10_000_000, help="Fresh prompts to average over.")
    ] = 1024,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Print a trained net's error after every loop, on its own task or with settings of the task changed.

    Looped nets run for as many loops as are asked for, also more than they were trained with.

    [bold]Example[/bold]  loopscale predict 3f2a --set task.noise=1 --loops 40
    """
    from loopscale.analysis.trained_nets import UnsuitableNet, predict_again

    changes = assignments(overrides)
    try:
        found = predict_again(opened(context, store, storage), trial, changes, loops, prompts)
    except UnsuitableNet as problem:
        raise Wrong(str(problem)) from problem
    if as_json:
        show_json(found)
        return
    changed = f", with {', '.join(f'{path} = {value}' for path, value in changes.items())}" if changes else ""
    say(f"trial {found['trial']}: {found['model']} on {found['task']}{changed}")
    columns = ["loop", "error", "error_last", "raw_error", "excess"]
    show_table(columns, ([row[column] for column in columns] for row in found["loops"]))
    steps = counted(found["trained_loops"], "loop" if found["looped"] else "layer")
    say(f"Trained with {steps}; {prompts:,} prompts; predicting nothing costs 1.")
