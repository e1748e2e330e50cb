"""Every mistake in a study file is one line: file, line, mistake, remedy."""

import copy
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from loopscale.notation.files import parse_yaml
from loopscale.notation.mistakes import Mistakes, dotted
from loopscale.studies.spec import Study

STUDY = """\
question: Does it fall?
fixed:
  task: {kind: linear_regression, dim: 3, points: 5}
  model: {kind: looped, width: 16, heads: 2}
  training:
    steps: 90
    loops: 4
    window: 2
scientific:
  training.loops: [2, 4]
where: training.window <= training.loops
nuisance:
  training.lr: {real: [1e-4, 1e-2], scale: log}
search: {kind: tpe, trials: 5}
scheduler: {kind: asha, first_rung: 10}
replicates: 2
evaluate: {loops: 10}
baselines: [newton]
laws:
  - {along: loop}
"""
"""Each mistake replaces one line; lines count from 1."""


def change(old: str, new: str) -> str:
    assert STUDY.count(old) == 1, f"{old!r} must be in the study once"
    return STUDY.replace(old, new)


# the old text, the new text, the reported line, the offending text, the remedy
WRONG = {
    "unknown key": ("replicates: 2", "replicatse: 2", 16, "replicatse", "did you mean replicates"),
    "unknown key in a part": (
        "{kind: tpe, trials: 5}",
        "{kind: tpe, trails: 5}",
        14,
        "trails",
        "did you mean trials",
    ),
    "unknown setting": ("width: 16", "widht: 16", 4, "widht", "did you mean width"),
    "unknown setting of training": ("    window: 2", "    windows: 2", 8, "windows", "did you mean window"),
    "missing question": ("question: Does it fall?", "source: x", 1, "question is missing", "write question"),
    "empty question": (
        "question: Does it fall?",
        "question: ''",
        1,
        "question is ''",
        "at least 1 character",
    ),
    "wrong type": ("steps: 90", "steps: many", 6, "'many'", "whole number"),
    "a number as text": ("steps: 90", "steps: '90'", 6, "'90'", "write steps: 90"),
    "true for a number": ("steps: 90", "steps: true", 6, "True", "write steps: 1"),
    "half a step": ("steps: 90", "steps: 90.5", 6, "90.5", "whole number"),
    "misspelt task": (
        "linear_regression",
        "linear_regresion",
        3,
        "linear_regresion",
        "did you mean linear_regression",
    ),
    "misspelt model": ("kind: looped", "kind: loopd", 4, "loopd", "did you mean looped"),
    "misspelt search": ("kind: tpe", "kind: tpee", 14, "tpee", "did you mean tpe"),
    "misspelt scheduler": ("kind: asha", "kind: ashaa", 15, "ashaa", "did you mean asha"),
    "misspelt solver": ("[newton]", "[newtn]", 18, "newtn", "did you mean newton"),
    "a model without kind": ("kind: looped, width: 16", "width: 16", 4, "no kind", "looped"),
    "a model by name alone": (
        "model: {kind: looped, width: 16, heads: 2}",
        "model: looped",
        4,
        "looped",
        "{kind: looped}",
    ),
    "no task": ("  task: {kind: linear_regression, dim: 3, points: 5}\n", "", 2, "no task", "task: {kind:"),
    "fixed that is a list": (
        "  model: {kind: looped, width: 16, heads: 2}",
        "  model: [1]",
        4,
        "[1]",
        "mapping",
    ),
    "no such part of a trial": ("  task: {kind", "  taks: {kind", 3, "taks", "did you mean task"),
    "lower end rejected": (
        "real: [1e-4, 1e-2], scale: log",
        "real: [0, 1e-2]",
        13,
        "training.lr is 0.0",
        "above 0",
    ),
    "T = 0": ("[2, 4]", "[2, 0]", 10, "training.loops is 0", "above 0"),
    "ΔT < 1": ("window: 2", "window: 0", 8, "training.window is 0", "above 0"),
    "window > loops": (
        "[2, 4]\nwhere: training.window <= training.loops",
        "[1, 4]",
        10,
        "window 2 is more",
        "write a window of 1 or less",
    ),
    "heads that do not divide": (
        "heads: 2",
        "heads: 3",
        4,
        "3 heads do not divide width 16",
        "write one of 1, 2, 4, 8, 16",
    ),
    "injection none, truncated": (
        "heads: 2",
        "heads: 2, injection: none",
        10,
        "window 2 of 4",
        "truncate to false",
    ),
    "law over an unvaried axis": (
        "along: loop",
        "along: model.width",
        20,
        "model.width",
        "training.loops, flops, loop, point",
    ),
    "law along prompts that are the same": (
        "along: loop",
        "along: prompts",
        20,
        "prompts, which are the same in every cell",
        "vary a number of training.steps or training.batch_size",
    ),
    "law along a misspelt derived axis": ("along: loop", "along: flop", 20, "flop", "did you mean flops"),
    "law over a tuned axis": ("along: loop", "along: training.lr", 20, "training.lr", "training.loops"),
    "law of no measure": ("along: loop", "along: loop, of: erorr", 20, "erorr", "did you mean error"),
    "law of no form": ("along: loop", "along: loop, form: powr", 20, "powr", "did you mean power"),
    "unknown bound": (
        "along: loop",
        "along: loop, theory: newton",
        20,
        "'newton'",
        "did you mean newton_steps",
    ),
    "unknown setting of a bound": (
        "along: loop",
        "along: loop, theory: {kind: newton_residual, dmi: 2}",
        20,
        "'dmi'",
        "did you mean dim",
    ),
    "empty axis": ("[2, 4]", "[]", 10, "training.loops has no values", "[1, 2]"),
    "axis that is no list": ("[2, 4]", "4", 10, "training.loops is 4", "write a list"),
    "equal cells": ("[2, 4]", "[2, 4, 2]", 10, "values 2 and 2 of training.loops give equal cells", "once"),
    "axis twice": ("where:", "  training.loops: [3]\nwhere:", 11, "first in line 10", "keep one"),
    "axis of no trial": ("training.loops: [2, 4]", "training.lops: [2, 4]", 10, "lops", "did you mean loops"),
    "axis of no part": ("  training.loops: [2, 4]", "  loops: [2, 4]", 10, "loops", "task, model, training"),
    "axis without effect on training": (
        "  training.loops: [2, 4]",
        "  training.eval_every: [2, 4]",
        10,
        "eval_every",
        "fixed",
    ),
    "seed as an axis": ("  training.loops: [2, 4]", "  seed: [2, 4]", 10, "seed", "replicates"),
    "seed fixed": ("  model: {", "  seed: 1\n  model: {", 4, "seed", "replicates"),
    "seed tuned": (
        "  training.lr: {real: [1e-4, 1e-2], scale: log}",
        "  seed: {integer: [0, 9]}",
        13,
        "seed",
        "replicates",
    ),
    "a condition of no setting": (
        "where: training.window <= training.loops",
        "where: 1 < 2",
        11,
        "names no setting",
        "name a setting",
    ),
    "a law twice": ("{along: loop}", "{along: loop}\n  - {along: loop}", 21, "written twice", "keep one"),
    "a form twice": ("{along: loop}", "{along: loop, form: [power, power]}", 20, "written twice", "once"),
    "GPU hours without a GPU": (
        "replicates: 2",
        "replicates: 2\nbudget: {gpu_hours: 3}",
        17,
        "limits nothing",
        "core_hours",
    ),
    "an end of searches without a search": (
        "nuisance:\n  training.lr: {real: [1e-4, 1e-2], scale: log}\nsearch: {kind: tpe, trials: 5}\n"
        "scheduler: {kind: asha, first_rung: 10}\n",
        "stop: {error_below: 0.1}\n",
        12,
        "this study tunes nothing",
        "remove it",
    ),
    "fixed and tuned": (
        "    window: 2",
        "    window: 2\n    lr: fast",
        9,
        "fixed sets training.lr, and nuisance tunes it",
        "keep one of the two",
    ),
    "scientific and nuisance": (
        "  training.lr: {real: [1e-4, 1e-2], scale: log}",
        "  training.loops: {integer: [2, 4]}",
        13,
        "both scientific and nuisance",
        "keep it in one",
    ),
    "tuned and set by a value": (
        "  training.loops: [2, 4]",
        "  training: [{lr: 1e-3}, {lr: 1e-2}]",
        10,
        "set by a value",
        "remove lr here",
    ),
    "tuned task": (
        "  training.lr: {real: [1e-4, 1e-2], scale: log}",
        "  task.dim: {integer: [2, 4]}",
        13,
        "task.dim",
        "scientific",
    ),
    "tuned kind": (
        "  training.lr: {real: [1e-4, 1e-2], scale: log}",
        "  model.kind: {choice: [looped]}",
        13,
        "model.kind",
        "scientific",
    ),
    "tuned nowhere": (
        "  training.lr: {real: [1e-4, 1e-2], scale: log}",
        "  model.pre_layers: {integer: [1, 2]}",
        13,
        "pre_layers",
        "layers",
    ),
    "empty choice": ("{real: [1e-4, 1e-2], scale: log}", "{choice: []}", 13, "choice is empty", "[1, 2, 4]"),
    "choice with a value twice": (
        "{real: [1e-4, 1e-2], scale: log}",
        "{choice: [1, 1]}",
        13,
        "twice",
        "once",
    ),
    "range of no form": (
        "{real: [1e-4, 1e-2], scale: log}",
        "[1e-4, 1e-2]",
        13,
        "one of choice, integer, real",
        "{real:",
    ),
    "range with one end": ("[1e-4, 1e-2]", "[1e-4]", 13, "real", "1"),
    "range reversed": ("[1e-4, 1e-2]", "[1e-2, 1e-4]", 13, "reversed", "[0.0001, 0.01]"),
    "range of one value": ("[1e-4, 1e-2]", "[1e-2, 1e-2]", 13, "one value", "fixed"),
    "log range from 0": ("[1e-4, 1e-2]", "[0, 1e-2]", 13, "log scale cannot begin at 0", "above 0"),
    "unknown scale": ("scale: log", "scale: lg", 13, "'lg'", "did you mean log"),
    "where that leaves no cell": ("<= training.loops", "> training.loops", 11, "no cell is left", "loosen"),
    "where of an unknown path": (
        "<= training.loops",
        "<= training.lops",
        11,
        "training.lops",
        "did you mean training.loops",
    ),
    "where that no point satisfies": (
        "<= training.loops",
        "<= training.lr",
        11,
        "none of 10,000 random points of the cell training.loops=2 satisfies training.window <= training.lr",
        "loosen",
    ),
    "known point that is not tuned": (
        "search:",
        "known: [{training.steps: 90}]\nsearch:",
        14,
        "known names training.steps",
        "training.lr",
    ),
    "known point outside its range": (
        "search:",
        "known: [{training.lr: 1e-3}, {training.lr: 1}]\nsearch:",
        14,
        "training.lr 1 is not in [0.0001, 0.01]",
        "widen",
    ),
    "known point twice": (
        "search:",
        "known: [{training.lr: 1e-3}, {training.lr: 1e-3}]\nsearch:",
        14,
        "twice",
        "keep one",
    ),
    "more known points than trials": (
        "search: {kind: tpe, trials: 5}",
        "known: [{training.lr: 1e-3}, {training.lr: 2e-3}]\nsearch: {kind: tpe, trials: 1}",
        14,
        "known has 2 points",
        "2 or more",
    ),
    "known points of a grid": (
        "training.lr: {real: [1e-4, 1e-2], scale: log}\nsearch: {kind: tpe, trials: 5}",
        "training.lr: {choice: [1e-3, 1e-2]}\nknown: [{training.lr: 1e-3}]\nsearch: {kind: grid}",
        14,
        "a grid tries all of its points",
        "leave known out",
    ),
    "known point that where excludes": (
        "where: training.window <= training.loops\nnuisance:",
        "where: training.lr < 1e-3\nknown: [{training.lr: 1e-2}]\nnuisance:",
        12,
        "the known point does not satisfy training.lr < 1e-3",
        "change the point",
    ),
    "where that calls": ("<= training.loops", "<= max(1, 2)", 11, "max(1, 2)", "comparisons"),
    "where with a power": ("<= training.loops", "<= 9 ** 9", 11, "9 ** 9", "comparisons"),
    "where of text and number": ("training.window <=", "model.kind <=", 11, "'looped' and 2", "use numbers"),
    "where that is no condition": ("<= training.loops", "<=", 11, "is not a condition", "comparisons"),
    "where without a comparison": (
        "training.window <= training.loops",
        "training.loops",
        11,
        "neither true nor false",
        "compare",
    ),
    "replicates 0": ("replicates: 2", "replicates: 0", 16, "replicates is 0", "above 0"),
    "replicates negative": ("replicates: 2", "replicates: -1", 16, "replicates is -1", "above 0"),
    "no trials": ("trials: 5", "trials: 0", 14, "search.trials is 0", "1 or more"),
    "too many trials": ("trials: 5", "trials: 1_000_000", 14, "1000000", "10000 or less"),
    "grid over a range": (
        "{kind: tpe, trials: 5}",
        "{kind: grid}",
        13,
        "cannot cross the range",
        "points: n",
    ),
    "grid with trials": (
        "{kind: tpe, trials: 5}",
        "{kind: grid, trials: 5}",
        14,
        "all of its points",
        "leave trials out",
    ),
    "two objectives for tpe": ("trials: 5", "objectives: [error, flops]", 14, "tpe cannot weigh", "nsga2"),
    "nsga2 with one": ("kind: tpe", "kind: nsga2", 14, "nsga2 weighs 2 objectives", "[error, flops]"),
    "nsga2 with asha": (
        "{kind: tpe, trials: 5}",
        "{kind: nsga2, objectives: [error, flops]}",
        15,
        "cannot go with asha",
        "none",
    ),
    "scheduler without anything tuned": (
        "nuisance:\n  training.lr: {real: [1e-4, 1e-2], scale: log}\nsearch: {kind: tpe, trials: 5}\n",
        "",
        12,
        "scheduler prunes the tuning of a cell, and this study tunes nothing",
        "remove scheduler",
    ),
    "search without anything tuned": (
        "nuisance:\n  training.lr: {real: [1e-4, 1e-2], scale: log}\nsearch: {kind: tpe, trials: 5}\n"
        "scheduler: {kind: asha, first_rung: 10}\n",
        "search: {trials: 5}\n",
        12,
        "search tunes the points of a cell, and this study tunes nothing",
        "remove search",
    ),
    "first rung without rungs": (
        "kind: asha, first_rung",
        "kind: none, first_rung",
        15,
        "none has no rungs, so scheduler.first_rung is never read",
        "write scheduler: {kind: none}",
    ),
    "reduction without a kind": (
        "{kind: asha, first_rung: 10}",
        "{reduction: 4}",
        15,
        "none has no rungs, so scheduler.reduction is never read",
        "kind: asha",
    ),
    "claim with a number as text": (
        "laws:",
        "claims: [{text: a, first: {training.loops: '2'}, second: {training.loops: 4}}]\nlaws:",
        19,
        "'2'",
        "for training.loops did you mean 2?",
    ),
    "claim of one cell against the same cell": (
        "laws:",
        "claims: [{text: a, first: {training.loops: 2, loop: 2}, second: {training.loops: 2}}]\nlaws:",
        19,
        "both sides are loop 2 of loops=2",
        "name another cell",
    ),
    "held-out value twice": (
        "- {along: loop}",
        "- {along: training.loops, hold_out: [4, 4]}",
        20,
        "hold_out names 4 twice",
        "keep one",
    ),
    "asha without first_rung": (", first_rung: 10", "", 15, "asha needs first_rung", "first_rung"),
    "first rung beyond the end": ("first_rung: 10", "first_rung: 90", 15, "90 is not before", "below 90"),
    "reduction 1": (
        "first_rung: 10",
        "first_rung: 10, reduction: 1",
        15,
        "scheduler.reduction is 1",
        "2 or more",
    ),
    "evaluation with too few loops": ("{loops: 10}", "{loops: 3}", 17, "evaluate.loops is 3", "4 or more"),
    "baseline twice": ("[newton]", "[newton, newton]", 18, "newton is listed twice", "keep one"),
    "baseline without its features": (
        "[newton]",
        "[{kind: newton, features: representation}]",
        18,
        "newton on linear_regression",
        " ",
    ),
    "part of a CPU too many": ("replicates: 2", "resources: {cpu: 1.5}", 16, "cpu is 1.5", "whole number"),
    "no GPU share": ("replicates: 2", "resources: {gpu: -1}", 16, "gpu is -1", "0 or more"),
    "two GPUs for a trial": (
        "replicates: 2",
        "resources: {gpu: 2}",
        16,
        "a trial trains on one GPU and not on 2",
        "gpu: 1, and trials run side by side",
    ),
    "budget of nothing": ("replicates: 2", "budget: {gpu_hours: 0}", 16, "gpu_hours is 0", "above 0"),
    "YAML syntax": ("[2, 4]", "[2, 4", 11, "not YAML", "brackets"),
    "a tab": ("  model: {", "\tmodel: {", 4, "not YAML", "spaces"),
    "a key twice": ("replicates: 2", "replicates: 2\nreplicates: 3", 17, "first in line 16", "keep one"),
    "a tag": (
        "replicates: 2",
        "replicates: !!python/object/apply:os.system [ls]",
        16,
        "tag !!python",
        "plain data",
    ),
    "a key that is a number": ("replicates: 2", "3: 2", 16, "the key is '3'", "name of a setting"),
    "an alias to itself": ("replicates: 2", "budget: &a {hours: *a}", 16, "aliases", "write the values out"),
    "an alias to nothing": ("replicates: 2", "replicates: *a", 16, "undefined alias", "write the value out"),
    "two documents": ("replicates: 2", "---\nreplicates: 2", 16, "single document", "one study"),
    "a kind that is a list": ("kind: looped", "kind: [looped]", 4, "['looped']", "did you mean looped"),
    "a solver whose kind is a mapping": ("[newton]", "[{kind: {a: 1}}]", 18, "{'a': 1}", "use one of"),
    "a bound whose kind is a list": (
        "along: loop",
        "along: loop, theory: {kind: [a]}",
        20,
        "['a']",
        "use one of",
    ),
    "a task that fills the memory": ("dim: 3", "dim: 1_000_000_000", 3, "1,000,000,000", "16,384 or less"),
    "a wide task": ("dim: 3", "dim: 9_000", 3, "task.dim is 9,000", "4,096 numbers"),
    "a batch that fills the memory": (
        "    steps: 90",
        "    steps: 90\n    batch_size: 1_000_000_000",
        7,
        "1,000,000,000",
        "6,710,886 or less",
    ),
    "a model that is too wide": (
        "width: 16",
        "width: 10_000_000_000_000",
        4,
        "model.width",
        "65,536 or less",
    ),
    "more loops than are evaluated": (
        "{loops: 10}",
        "{loops: 1_000_000}",
        17,
        "evaluate.loops",
        "100,000 or less",
    ),
    "an axis below a number": ("training.loops:", "training.loops.x:", 10, "has no 'x'", "name a setting"),
    "an axis of values that are no parts": (
        "training.loops: [2, 4]",
        "model: [gpt2]",
        10,
        "'gpt2'",
        "{kind: gpt2}",
    ),
    "an axis of texts": ("[2, 4]", "[2, '4']", 10, "'4', not a number", "write loops: 4"),
    "a part tuned as a whole": (
        "training.lr: {real: [1e-4, 1e-2], scale: log}",
        "training: {choice: [1, 2]}",
        13,
        "as a whole",
        "training.lr",
    ),
    "an end beyond all numbers": (
        "training.lr: {real: [1e-4, 1e-2], scale: log}",
        "training.batch_size: {integer: [1, 100000000000000000000000]}",
        13,
        "batch_size",
        "or less",
    ),
    "a choice of lists": (
        "{real: [1e-4, 1e-2], scale: log}",
        "{choice: [[1]]}",
        13,
        "is [1]",
        "single values",
    ),
    "replicates as text": ("replicates: 2", "replicates: '2'", 16, "'2', not a number", "replicates: 2"),
    "replicates that are true": ("replicates: 2", "replicates: true", 16, "True, not a number", "write"),
    "truth as a word": (
        "    window: 2",
        "    window: 2\n    truncate: yes",
        9,
        "not true or false",
        "truncate: true",
    ),
    "a number for a truth value": (
        "    window: 2",
        "    window: 2\n    truncate: 1",
        9,
        "training.truncate is 1, not true or false",
        "write truncate: true",
    ),
    "a number among the truth values of an axis": (
        "  training.loops: [2, 4]",
        "  training.loops: [2, 4]\n  training.truncate: [true, 0]",
        11,
        "training.truncate is 0, not true or false",
        "write truncate: false",
    ),
    "numbers to choose for a truth value": (
        "  training.lr: {real: [1e-4, 1e-2], scale: log}",
        "  model.repeat_norm: {choice: [0, 1]}",
        13,
        "model.repeat_norm is 0, not true or false",
        "write repeat_norm: false",
    ),
    "true for a number of the evaluated task": (
        "{loops: 10}",
        "{loops: 10, task: {noise: true}}",
        17,
        "evaluate.task.noise is True, not a number",
        "write noise: 1.0",
    ),
    "true for a number of a bound": (
        "{along: loop}",
        "{along: loop, theory: {kind: tied_descent, noise: true}}",
        20,
        "laws.0.theory.noise is True, not a number",
        "write noise: 1.0",
    ),
    "true for a number in where": (
        "where: training.window <= training.loops",
        "where: training.window != true",
        11,
        "where compares 2 with True",
        "numbers with numbers",
    ),
    "a number for a truth value in a list of where": (
        "where: training.window <= training.loops",
        "where: training.truncate in [0, 1]",
        11,
        "where compares True with [0, 1]",
        "true or false",
    ),
    "true for a number of a claim": (
        "    window: 2\nscientific:\n  training.loops: [2, 4]",
        "    window: 1\nclaims: [{text: a, first: {training.loops: 4}, second: {training.loops: true}}]\n"
        "scientific:\n  training.loops: [1, 4]",
        9,
        "a claim names {'training.loops': True}, which are 0 cells",
        "for training.loops use one of 1, 4",
    ),
    "a number for a truth value of a solver": (
        "baselines: [newton]",
        "baselines: [{kind: gradient_descent, rate: 1.0}]\nclaims:\n- text: a\n  first: {training.loops: 4}\n"
        "  second: {solver: {kind: gradient_descent, rate: true}}",
        22,
        "a claim names the solver {'kind': 'gradient_descent', 'rate': True}",
        "name a baseline",
    ),
    "a claim about a baseline that is listed twice": (
        "baselines: [newton]",
        "baselines: [newton, newton]\nclaims: [{text: a, first: {training.loops: 4}, second: {solver: newton}}]",
        18,
        "baseline newton is listed twice",
        "keep one",
    ),
    "search by name alone": ("{kind: tpe, trials: 5}", "tpe", 14, "'tpe'", "search: {kind: tpe}"),
    "an unknown construction": (
        "[newton]",
        "[{kind: construction, name: newtn}]",
        18,
        "newtn is not a construction",
        "write one of causal_gradient_descent, ",
    ),
    "a construction with an unknown setting": (
        "[newton]",
        "[{kind: construction, name: newton, strt: 2}]",
        18,
        "baselines.0 has no setting 'strt'",
        "did you mean start?",
    ),
    "a construction of another task": (
        "[newton]",
        "[{kind: construction, name: gaussian_em}]",
        18,
        "gaussian_em reads tokens that no task has",
        "write one of causal_gradient_descent, ",
    ),
    "a construction with a list for a name": (
        "[newton]",
        "[{kind: construction, name: [1]}]",
        18,
        "[1] is not a construction",
        "write one of causal_gradient_descent, ",
    ),
    "baselines by name alone": ("[newton]", "newton", 18, "'newton'", "[newton]"),
    "a key without a value": ("replicates: 2", "budget:", 16, "None", "take budget out"),
    "where with bare text": ("<= training.loops", "== looped", 11, "looped", "in quotes"),
    "warm-up beyond the end": (
        "    window: 2",
        "    window: 2\n    warmup: 91",
        9,
        "warmup 91",
        "90 or less",
    ),
    "no end to a number": ("steps: 90", "steps: 1e999", 6, "1e999", "write a number"),
}


def mistakes(path: Path) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        Study.load(path)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("old", "new", "line", "offending", "remedy"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line(tmp_path: Path, old: str, new: str, line: int, offending: str, remedy: str):
    (path := tmp_path / "study.yaml").write_text(change(old, new), encoding="utf-8")
    lines = mistakes(path)
    assert len(lines) == 1, lines
    where, _, message = lines[0].partition(": ")
    assert where == f"{path}:{line}"
    _, _, right = message.partition("; ")
    assert offending in message, message
    assert remedy in right, message


def test_the_study_without_a_mistake_loads(tmp_path: Path):
    (path := tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    assert len(Study.load(path).cells()) == 2


def test_the_tuning_is_turned_off_by_an_empty_mapping(tmp_path: Path):
    (path := tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    assert not Study.load(path, {"nuisance": "{}"}).nuisance


def test_all_mistakes_are_reported_at_once(tmp_path: Path):
    text = (
        change("heads: 2", "heads: 3")
        .replace("replicates: 2", "replicates: 0")
        .replace("along: loop", "along: x")
    )
    (path := tmp_path / "study.yaml").write_text(text)
    lines = mistakes(path)
    assert [int(re.search(r":(\d+):", line)[1]) for line in lines] == [16, 4]  # pyright: ignore[reportOptionalSubscript]


def test_a_mistake_of_every_cell_is_reported_once(tmp_path: Path):
    (path := tmp_path / "study.yaml").write_text(
        change("[2, 4]", "[2, 3, 4, 5, 6]").replace("steps: 90", "steps: -1")
    )
    assert len(mistakes(path)) == 1


def test_a_fixed_setting_that_no_kind_has_is_a_mistake(tmp_path: Path):
    text = change("{kind: looped, width: 16, heads: 2}", "{width: 16, heads: 2, depht: 3}")
    text = text.replace("scientific:", "scientific:\n  model: [{kind: gpt2}, {kind: looped}]")
    (path := tmp_path / "study.yaml").write_text(text)
    [line] = mistakes(path)
    assert line.startswith(f"{path}:4: model has no setting 'depht'")


def test_a_billion_cells_are_refused_without_being_made(tmp_path: Path):
    axes = "\n".join(
        f"  training.{name}: {list(range(2, 1002))}" for name in ("loops", "steps", "batch_size")
    )
    (path := tmp_path / "study.yaml").write_text(change("  training.loops: [2, 4]", axes))
    [line] = mistakes(path)
    assert "1,000,000,000 cells" in line
    assert "at most 10,000" in line


def test_aliases_that_unfold_into_a_billion_are_refused(tmp_path: Path):
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    (path := tmp_path / "study.yaml").write_text(bomb)
    [line] = mistakes(path)
    assert "aliases unfold" in line


@pytest.mark.parametrize(
    ("name", "content", "offending"),
    [
        ("empty.yaml", b"", "empty"),
        ("comment.yaml", b"# nothing\n", "empty"),
        ("list.yaml", b"- 1\n", "a list"),
        ("word.yaml", b"hello\n", "a single value"),
        ("binary.yaml", b"a: \xff\xfe\x00", "not UTF-8"),
        ("control.yaml", b"a: \x00", "not allowed in YAML"),
        ("large.yaml", b"a" * (2**18 + 1), "larger than 256 KiB"),
        ("deep.yaml", b"[" * 5000, "nested too deeply"),
        ("a b.yaml", STUDY.encode(), "cannot be a study's name"),
    ],
)
def test_a_file_without_a_study_is_one_line(tmp_path: Path, name: str, content: bytes, offending: str):
    (path := tmp_path / name).write_bytes(content)
    [line] = mistakes(path)
    assert line.startswith(str(path))
    assert offending in line
    assert "; " in line


def test_a_folder_is_no_study(tmp_path: Path):
    [line] = mistakes(tmp_path)
    assert "is a folder" in line


def test_a_missing_file_names_the_nearest_file(tmp_path: Path):
    (tmp_path / "figure.yaml").write_text(STUDY)
    [line] = mistakes(tmp_path / "figur.yaml")
    assert "no such file" in line
    assert "did you mean" in line
    assert "figure.yaml" in line


def test_a_missing_study_names_the_nearest_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "studies" / "paper").mkdir(parents=True)
    (tmp_path / "studies" / "paper" / "figure3.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    [line] = mistakes(Path("paper/figure33"))
    assert "did you mean paper/figure3" in line
    [line] = mistakes(Path("../studies/paper/figure3"))
    assert "no such study" in line


@pytest.mark.parametrize(
    ("path", "value", "offending"),
    [
        ("training.steps", "0", "training.steps is 0"),
        ("training.stps", "10", "no setting 'stps'; did you mean steps?"),
        ("replicates", "none", "replicates is 'none'"),
        ("training.loops", "3", "write --set scientific.training.loops="),
        ("training.lr", "1e-3", "write --set nuisance.training.lr="),
        ("scientific.training.loops", "[0]", "training.loops is 0"),
        ("search.trials", "[", "not YAML"),
        ("baselines.7", "ridge", "there is no baselines.7"),
        ("question.x", "1", "there is no question.x"),
        ("scientific.training.loops.0", "0", "training.loops is 0"),
        ("scientific.training.loops.7", "3", "use one of 0, 1"),
        ("a.b.c", "1", "study has no setting 'a'"),
        ("training.steps", "90\nfoo: 3", "more than one setting"),
        ("budget.gpu_hour", "1", "did you mean gpu_hours"),
    ],
)
def test_a_mistake_in_an_override_names_the_override(tmp_path: Path, path: str, value: str, offending: str):
    (file := tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(Mistakes) as caught:
        Study.load(file, {path: value})
    [line] = str(caught.value).splitlines()
    assert line.startswith(" ".join(f"--set {path}={value}: ".split()))
    assert offending in line


def test_a_study_is_found_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "studies" / "paper").mkdir(parents=True)
    (tmp_path / "studies" / "paper" / "figure3.yaml").write_text(STUDY)
    (tmp_path / "paper").mkdir()  # a folder of that name is no reason to miss the study
    monkeypatch.chdir(tmp_path)
    for words in ("paper/figure3", "./paper/figure3", "studies/paper/figure3", "studies/paper/figure3.yaml"):
        assert Study.load(words).name == "paper/figure3"
    assert Study.load(tmp_path / "studies/paper/figure3").name == "paper/figure3"
    assert "name the study, paper/figure3" in mistakes(Path("paper/figure3.yaml"))[0]


@pytest.mark.parametrize("name", ["", "  ", "a" * 300, "a" * 300 + ".yaml", "dangling.yaml"])
def test_an_impossible_name_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.chdir(tmp_path)
    Path("dangling.yaml").symlink_to("nowhere")
    with pytest.raises(Mistakes) as caught:
        Study.load(name)
    [line] = str(caught.value).splitlines()
    assert "; " in line


BANDIT = """\
question: Does it play?
fixed:
  task: {kind: bandit, dim: 3, points: 5}
  model: {kind: gpt2, width: 16, layers: 1, heads: 2}
  training: {steps: 90}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "points: 5}",
            "points: 5, expert: lin_ucbb}",
            "3: task.expert is 'lin_ucbb'; did you mean lin_ucb? There is optimal, empirical_mean, ucb1, lin_ucb, "
            "soft_lin_ucb, thompson",
        ),
        (
            "steps: 90}",
            "steps: 90}\nbaselines: [soft_lin_ucb]",
            "6: baseline soft_lin_ucb solves no task of this study (bandit); use one of best_arm, empirical_mean, "
            "thompson, ucb1, uniform_play",
        ),
        (
            "bandit, dim: 3, points: 5}",
            "mdp, points: 16384, horizon: 4}",
            "3: task.points is 16,384, which makes prompts of 65,536 tokens of 15 numbers; write less: a token can "
            "have at most 4,096 numbers, and a prompt 32,768 tokens",
        ),
        (
            "points: 5}",
            "points: 5, active: 1}",
            "3: one arm is in play, so every player has regret 0; write active: 2 or more",
        ),
        (
            "bandit, dim: 3, points: 5}",
            "mdp, environment: chain, dim: 8, horizon: 4, points: 5}",
            "3: a chain of 8 states pays nothing within 4 stages, so every player has regret 0; write horizon: 8 or "
            "more, or fewer states",
        ),
        (
            "steps: 90}",
            "steps: 90}\nevaluate: {task: {active: 1}}",
            "6: evaluate.task: one arm is in play, so every player has regret 0; write active: 2 or more",
        ),
        (
            "points: 5}",
            "points: 5, reward_noise: 0.5}",
            "3: fixed sets task.reward_noise, and a Bernoulli reward has no noise; take the setting out",
        ),
        (
            "bandit, dim: 3, points: 5}",
            "mdp, slip: 0.3, points: 5}",
            "3: fixed sets task.slip, and a random MDP does not slip; take the setting out",
        ),
        (
            "bandit, dim: 3, points: 5}",
            "network_regression, gain: 2}",
            "3: fixed sets task.gain, and the gain of a ReLU network has no effect; take the setting out",
        ),
    ],
)
def test_a_mistake_in_a_study_of_a_decoder_on_bandits_is_one_line(
    tmp_path: Path, old: str, new: str, message: str
):
    (path := tmp_path / "study.yaml").write_text(BANDIT.replace(old, new), encoding="utf-8")
    assert mistakes(path) == [f"{path}:{message}"]


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("points: 5}", "points: 5, reward_noise: 0.5}", "scientific: {task.rewards: [bernoulli, gaussian]}"),
        ("points: 5}", "points: 5, reward_noise: 0.5}", "evaluate: {task: {rewards: gaussian}}"),
        ("steps: 90}", "steps: 90, curriculum: {dim: 1, points: 2, every: 10}}", ""),
    ],
)
def test_a_setting_with_effect_in_some_cell_and_an_easy_start_are_no_mistakes(
    tmp_path: Path, old: str, new: str, more: str
):
    (path := tmp_path / "study.yaml").write_text(BANDIT.replace(old, new) + more, encoding="utf-8")
    Study.load(path)


EVERY_KEY = """\
question: Does it fall?
fixed:
  task: {kind: linear_regression, dim: 2, points: 4, noise: 0.1}
  model: {kind: looped, width: 8, heads: 1, biases: true}
  training: {steps: 90, window: 1, truncate: true, optimizer: {kind: adam}}
scientific:
  training.loops: [1, 2, 3, 4]
nuisance:
  training.lr: {real: [0.001, 1.0], step: 0.333}
  training.batch_size: {integer: [1, 8], step: 1}
  training.clip: {choice: [0.5, 1.0]}
  model.repeat_norm: {choice: [true, false]}
known: [{training.lr: 0.001, training.batch_size: 1, model.repeat_norm: true}]
search: {kind: tpe, trials: 2, seeds: 1}
scheduler: {kind: asha, first_rung: 1, reduction: 2}
replicates: 2
evaluate: {loops: 5, prompts: 16, task: {noise: 1.0}}
baselines: [{kind: gradient_descent, rate: 1.0}]
laws: [{along: training.loops, form: [exponential], hold_out: [4], theory: {kind: tied_descent, noise: 1.0}}]
claims:
- {text: a, first: {training.loops: 2, loop: 1}, second: {training.loops: 1}, margin: 1.0}
- {text: b, first: {training.loops: 1}, second: {solver: {kind: gradient_descent, rate: 1.0}, step: 1}, level: 1.0}
until: {looks: [4, 8], most: 8, futile: 0.0, steps: 1, own_noise: false}
resources: {cpu: 1, gpu: 0, memory: 1}
budget: {hours: 1, core_hours: 1}
stop: {error_below: 1, trial_hours: 1, failures: 0.5}
"""
"""Numbers that equal a truth value, and truth values, in all parts of a study."""


def scalars(tree: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from scalars(value, (*place, name))
    if not isinstance(tree, dict | list):
        yield place, tree


@pytest.mark.slow
def test_no_key_takes_a_truth_value_for_a_number_or_a_number_for_a_truth_value():
    tree = parse_yaml(EVERY_KEY, "study").tree
    Study.parse(tree)
    taken: list[str] = []
    for place, value in scalars(tree):
        for other in (1, 0, 1.0) if isinstance(value, bool) else (True, False):
            changed = part = cast(Any, copy.deepcopy(tree))
            *parents, last = place
            for step in parents:
                part = part[step]
            part[last] = other
            with suppress(Mistakes):
                Study.parse(changed)
                taken.append(f"{dotted(place)}: {other}")
    assert taken == []


def test_the_last_part_of_a_study_name_leads_to_the_studies_that_end_so():
    with pytest.raises(Mistakes) as told:
        Study.load("figure3")
    assert str(told.value).endswith("did you mean algoformer/figure3 or algoformer/reduced/figure3?")
