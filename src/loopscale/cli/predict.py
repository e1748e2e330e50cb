"""`loopscale predict`: a trained net, evaluated again on its own or another data condition."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption, SetOption, StorageOption, StoreOption, assignments, opened
from loopscale.cli.output import counted, say, show_json, show_table
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.training.storage import Shelf
    from loopscale.training.trial import Trial


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
    from loopscale.cli.weights import weights_of

    changes = assignments(overrides)
    with weights_of(opened(context, store, storage), trial) as (shelf, key):
        found = _evaluated(shelf, key, changes, loops, prompts)
    if as_json:
        show_json(found)
        return
    changed = f", with {', '.join(f'{path} = {value}' for path, value in changes.items())}" if changes else ""
    say(f"trial {found['trial']}: {found['model']} on {found['task']}{changed}")
    columns = ["loop", "error", "error_last", "raw_error", "excess"]
    show_table(columns, ([row[column] for column in columns] for row in found["loops"]))
    steps = counted(found["trained_loops"], "loop" if found["looped"] else "layer")
    say(f"Trained with {steps}; {prompts:,} prompts; predicting nothing costs 1.")


def _evaluated(
    shelf: "Shelf", key: str, changes: dict[str, str], loops: int | None, prompts: int
) -> dict[str, Any]:
    from loopscale.evaluate import Evaluation, evaluate, summary
    from loopscale.training.checkpoint import CorruptCheckpoint, NewerFormat, load_net, load_trial, place
    from loopscale.training.device import pick

    try:
        trial = load_trial(shelf, key)
        task = _changed(trial, changes).task  # before a net is made, which a stranger's file may make large
        net = load_net(shelf, key, trial)
    except FileNotFoundError as problem:
        raise Wrong(f"{place(shelf, key)} is gone; try again") from problem
    except (CorruptCheckpoint, NewerFormat, ValueError) as problem:
        raise Wrong(f"{problem}; `loopscale run` of its study goes on from what is left") from problem
    if net.depth and loops and loops > net.depth:
        raise Wrong(f"--loops {loops} is more than this net's {net.depth} layers; give {net.depth} or fewer")
    evaluation = Evaluation(loops=loops or max(trial.steps_per_prompt, Evaluation().loops), prompts=prompts)
    try:
        curve = evaluate(net, task, evaluation, pick("auto"))
    except ValueError as problem:  # a longer prompt than it has positions for
        raise Wrong(f"trial {trial.key} cannot read such prompts: {problem}") from problem
    rows = [{"loop": loop} | summary(curve, task, loop) for loop in range(1, len(curve.error) + 1)]
    return {
        "trial": trial.key,
        "model": trial.model.kind,
        "task": task.kind,
        "looped": net.depth is None,
        "trained_loops": trial.steps_per_prompt,
        "prompts": prompts,
        "settings": trial.model_copy(update={"task": task}).model_dump(mode="json"),
        "loops": rows,
    }


def _changed(trial: "Trial", changes: dict[str, str]) -> "Trial":
    """The trial on another data condition. Raises Wrong and Mistakes."""
    from pydantic import ValidationError

    from loopscale.studies.limits import too_large
    from loopscale.studies.mistakes import Mistake, Mistakes
    from loopscale.studies.override import overridden
    from loopscale.studies.source import Source
    from loopscale.studies.wording import faults, passed_off

    for path in changes:
        if not path.startswith("task."):
            raise Wrong(
                f"--set {path} would be another net; only settings of the task can change, such as task.noise"
            )
    tree = overridden(Source.of({"fixed": trial.model_dump(mode="json")}, trial.key), changes).tree["fixed"]
    try:
        changed = type(trial).model_validate(tree)
    except ValidationError as problem:
        said = "--set " + " ".join(f"{path}={value}" for path, value in changes.items())
        found = faults(problem, type(trial), tree)
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in found) from None
    passed = [*passed_off(tree, changed), *too_large(changed)]
    if passed:
        said = "--set " + " ".join(f"{path}={value}" for path, value in changes.items())
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in passed)
    was, now = trial.task.prompt, changed.task.prompt
    if (was.dim_in, was.dim_out) != (now.dim_in, now.dim_out):
        raise Wrong(
            f"trial {trial.key} reads tokens of {was.dim_in} numbers, the changed task has {now.dim_in}; "
            "leave the dimensions as they are"
        )
    return changed
