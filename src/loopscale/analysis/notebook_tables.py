"""What a study found, as tables and sentences that read well in a notebook."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from collections.abc import Iterable
from dataclasses import fields
from html import escape

import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis import figures
from loopscale.analysis.answers import best as bests
from loopscale.analysis.answers.findings import find
from loopscale.analysis.answers.open_questions import Needed
from loopscale.analysis.figures.style import blank, safe, ticked
from loopscale.analysis.laws import study_laws as tested
from loopscale.analysis.tables import NAMES, StudyTable, answers, baselines_of, by_task, numbers, solver_name
from loopscale.core.visible import visible
from loopscale.studies.mistakes import one_of

BEST = ["error", "low", "high", "error_last", "replicates", "state", "trial"]
STANDINGS = ["baseline", "after", "error", "its error", "ratio", "low", "high"]
SPENT = ("raw_error", "validate_error", "step", "seconds", "flops")
"""Measures of a trial that are not of its answers, or that the error says already."""
LAWS = [
    "of",
    "along",
    "form",
    "rate",
    "low",
    "high",
    "from",
    "to",
    "theory",
    "predicted",
    "verdict",
    "because",
]


class Sentences(tuple[str, ...]):
    """Sentences, which a notebook shows as prose."""

    def __new__(cls, sentences: Iterable[str]) -> "Sentences":
        return super().__new__(cls, map(visible, sentences))

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self)


def best(study: StudyTable, trials: pd.DataFrame) -> pd.DataFrame:
    """A row a cell, under its label: what was tuned, the error with its 95 % interval, how far the cell is."""
    tuned = list(study.get("nuisance") or {})
    rows = []
    for one in bests.best(trials, study) if len(trials) else ():
        error = (one.error, one.error_low, one.error_high, one.error_last)
        point = (one.settings.get(path) for path in tuned)
        rows.append([one.label, *point, *error, one.replicates, one.state, one.trial])
    return pd.DataFrame(rows, columns=["cell", *tuned, *BEST]).set_index("cell")


def standings(study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """A row for every cell and classical algorithm, which was run on the same prompts for as many steps."""
    rows = [
        [one.label, one.baseline, one.loop, one.error, one.baseline_error, one.ratio, one.low, one.high]
        for one in (bests.against(trials, curves, study) if len(trials) else [])
    ]
    return pd.DataFrame(rows, columns=["cell", *STANDINGS]).set_index("cell")


def measures(study: StudyTable, trials: pd.DataFrame) -> pd.DataFrame:
    """Whatever the task measures besides the error, averaged over the runs that speak for a cell; task by task, with
    the classical algorithms below the nets.
    """
    known = [
        str(name) for name in trials.columns
        if "." not in str(name) and name not in (*NAMES, *SPENT) and trials[name].notna().any()
    ]  # fmt: skip
    rows, tasks = [], by_task(study, trials)
    for task, cells in tasks.items():
        mine = {
            cell["label"]: answers(trials, cell["key"])[0] for cell in study["cells"] if cell["key"] in cells
        }
        solvers = baselines_of(trials, next(iter(mine.values())).iloc[0])
        mine |= {solver_name(row): solvers.loc[[index]] for index, row in solvers.iterrows()}
        for name, each in mine.items():
            rows.append({"task": task, "by": name} | {of: numbers(each[of]).mean() for of in known})
    found = pd.DataFrame(rows, columns=["task", "by", *known]).set_index(["task", "by"])
    return found.droplevel("task") if len(tasks) < 2 else found


def laws(study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """A row for every law that the study asks for, also for those that too little has finished for."""
    fitted, unfitted = tested.laws(study, trials, curves) if len(trials) else ([], [])
    rows = []
    for one in fitted:
        law = (one.form.replace("_", " "), one.rate, one.low, one.high, min(one.x), max(one.x))
        judged = (str(one.verdict.word), one.verdict.because) if one.verdict else (None, one.note)
        rows.append([one.cell or "all", one.of, one.axis, *law, one.theory, one.predicted, *judged])
    rows += [[one.cell or "all", one.of, one.along, *[None] * 9, one.because] for one in unfitted]
    return pd.DataFrame(rows, columns=["cell", *LAWS]).set_index("cell")


def answered(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, history: pd.DataFrame
) -> list[str]:
    """The answer in words, as the report has it."""
    return find(study, trials, curves, history).sentences


def undecided(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, history: pd.DataFrame
) -> pd.DataFrame:
    """A row for everything that is open, with what would decide it, as the report has them."""
    rows = [vars(one) for one in find(study, trials, curves, history).needed] if len(trials) else []
    return pd.DataFrame(rows, columns=[part.name for part in fields(Needed)]).set_index("what")


def law(study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, of: str, along: str) -> go.Figure:
    """The study's laws of one quantity along one axis. ValueError for one that it does not ask for."""
    asked = [(each.get("of", "error"), each["along"]) for each in study.get("laws") or []]
    if (of, along) not in asked:
        known = [" along ".join(each) for each in asked]
        remedy = one_of(f"{of} along {along}", known) if known else "it asks for none"
        raise ValueError(f"{study['name']} asks for no law of {of} along {along}; {remedy}")
    fitted = [each for each in tested.laws(study, trials, curves)[0] if (each.of, each.along) == (of, along)]
    return figures.law(fitted) if fitted else go.Figure()


def drawn(figure: go.Figure) -> go.Figure:
    """Ready to be shown; one that has nothing in it says so."""
    return ticked(figure) if figure.data else lacking("Too little has finished for this figure.")


def lacking(missing: str) -> go.Figure:
    """A figure of nothing, that says in it what is missing."""
    figure = blank("", "", log_x=False)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, type="linear")
    figure.update_layout(height=160)
    where = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    text = safe(visible(missing)).replace(": ", ":<br>", 1)
    figure.add_annotation(text=text, font={"size": 15}, **where)
    return figure
