"""`loopscale predict`: evaluate a trained net again, on its own task or with changed settings."""

from typing import Annotated

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StorageOption,
    StoreOption,
    open_store,
    parse_assignments,
)
from loopscale.cli.output import plural, say, show_json, show_table


def command(
    context: typer.Context,
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="A trial's key, or a unique beginning of it.")
    ],
    overrides: SetOption = None,
    loops: Annotated[int | None, typer.Option("--loops", min=1, max=100_000, help="Loops to run.")] = None,
    prompts: Annotated[
        int, typer.Option("--prompts", min=1, max=10_000_000, help="Fresh prompts in the average.")
    ] = 1024,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Print a trained net's error after every loop, on its own task or on a task with changed settings.

    A looped net may run for more loops than in training.

    [bold]Example[/bold]  loopscale predict 3f2a --set task.noise=1 --loops 40
    """
    from loopscale.analysis.trained_nets import UnsuitableNet, predict_again

    changes = parse_assignments(overrides)
    try:
        key = trial.strip("\"'")  # as CSV writes texts
        prediction = predict_again(open_store(context, store, storage), key, changes, loops, prompts)
    except UnsuitableNet as problem:
        raise UsageError(str(problem)) from problem
    if as_json:
        show_json(prediction)
        return
    changed = f", with {', '.join(f'{path} = {value}' for path, value in changes.items())}" if changes else ""
    say(f"trial {prediction['trial']}: {prediction['model']} on {prediction['task']}{changed}")
    columns = ["loop", "error", "error_last", "raw_error", "excess"]
    show_table(columns, ([row[column] for column in columns] for row in prediction["loops"]))
    trained = plural(prediction["trained_loops"], "loop" if prediction["looped"] else "layer")
    say(f"Trained with {trained}; {prompts:,} prompts; predicting nothing costs 1.")
