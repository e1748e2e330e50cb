"""A study in a notebook: its answers as tables, sentences and figures.

    from loopscale.analysis.notebook import results

    study = results("quickstart")         # from the default store, or from an export beside the notebook
    study.best()
    study.against_loops()
    answer("quickstart")                  # the verdicts of one or several studies in two sentences

A study without records gives empty tables, and figures that name the missing trials.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.answers.best_cells import best, best_columns, best_notes
from loopscale.analysis.answers.claims import claim_notes, claims_table, judged_claims
from loopscale.analysis.answers.findings import QUESTIONS, study_findings
from loopscale.analysis.answers.matched_steps import MATCHED_COLUMNS, matched_notes, matched_steps
from loopscale.analysis.answers.optima import OPTIMUM_COLUMNS, optima
from loopscale.analysis.answers.pareto import PARETO_COLUMNS, CostBasis, fronts, stretches
from loopscale.analysis.answers.standings import STANDINGS, standings, standings_notes
from loopscale.analysis.answers.summary import answer_sentences, verdict_sentences
from loopscale.analysis.answers.times import TIME_COLUMNS, times_to_levels
from loopscale.analysis.figures import cells, curves, emergence, matched, settings, similarity, tuning
from loopscale.analysis.figures.base import Figure, Reported, figures_of_kind
from loopscale.analysis.figures.laws import law_figure
from loopscale.analysis.figures.panels import finished, shows_values
from loopscale.analysis.figures.pareto import cost_front
from loopscale.analysis.figures.style import blank, safe
from loopscale.analysis.laws.law import NO_LAW, study_laws
from loopscale.analysis.laws.words import LAW_COLUMNS
from loopscale.analysis.recorded.axes import independent_axes
from loopscale.analysis.recorded.learning import NOT_LEARNT
from loopscale.analysis.recorded.load import find_results
from loopscale.analysis.recorded.results import CellResult, Query, Results, mean
from loopscale.analysis.table import CaptionedTable, Sentences, StyledTable, frame
from loopscale.analysis.trained_nets import TrainedNet, trained_nets
from loopscale.core.visible import visible
from loopscale.notation.mistakes import one_of
from loopscale.records.model import LEARNING
from loopscale.records.stores.base import Store
from loopscale.stats.milestones import measure_of
from loopscale.stats.verdict_rule import RATE_VERDICTS
from loopscale.studies.held_out import HoldOut

COSTS = (
    "raw_error",
    "validate_error",
    "step",
    "seconds",
    "flops",
    "regret_sem",
    "regret_last_sem",
    *LEARNING,
)
"""Measures that the table of measures leaves out: costs and states of training, and variants of `error`."""
NO_ROUNDS = "These records have the regret of whole games alone: run the study again for the regret after every round."
"""The text in place of a figure of regret against rounds."""
NOT_COMPARED = (
    "These nets were compared with no solver in training: write training.similar_to, and train new nets."
)
"""The text in place of a figure along training."""


def results(
    study: str | Path, store: Store | str | Path | None = None, beside: str | Path = "data"
) -> "StudyResults":
    """The results of a study, as `load.find_results` finds them. `study` is a name or the path of a file.

    Raises StoreError for records that cannot be read, Mistakes for a study with neither records nor a file.
    """
    return StudyResults.of(find_results(study, store, beside))


class StudyResults(Results):
    """The results of a study with its tables, sentences and figures.

    If a study has several tasks, a figure shows one of them: `task` is one of `task_names()`.
    """

    @classmethod
    def of(cls, results: Results) -> "StudyResults":
        parts: dict[str, Any] = {part.name: getattr(results, part.name) for part in fields(Results)}
        for name in ("trials", "curves"):
            parts[name] = StyledTable(parts[name])
        return cls(**parts)

    def __repr__(self) -> str:
        return visible(f"{self.name}: {self.study.get('question', '')} {self.missing or self._extent}")

    def _repr_html_(self) -> str:
        name, question = (escape(visible(text)) for text in (self.name, str(self.study.get("question", ""))))
        return f"<p><b>{name}</b>: {question}<br>{escape(visible(self.missing or self._extent))}</p>"

    @property
    def _extent(self) -> str:
        count = len(self.cells)
        return f"{len(self.present):,} trials in {count:,} {'cell' if count == 1 else 'cells'}, from {self.origin}."

    def best(self) -> pd.DataFrame:
        """The best configuration of every cell: the tuned settings, the error with its interval, the cell's state."""
        answers = best(self) if self.trained else []
        return CaptionedTable(frame(best_columns(self), answers), best_notes(answers))

    def standings(self) -> pd.DataFrame:
        """Every cell's error over that of each classical algorithm after as many steps, on the same prompts."""
        rows = standings(self)
        return CaptionedTable(frame(STANDINGS, rows), standings_notes(rows))

    def matched_steps(self) -> pd.DataFrame:
        """The steps of every iterative algorithm after which its error is that of a cell, on the same prompts."""
        rows = matched_steps(self)
        return CaptionedTable(frame(MATCHED_COLUMNS, rows), matched_notes(rows))

    def measures(self) -> pd.DataFrame:
        """Mean errors and other measures of the task, such as `ari`, of every cell and then of every algorithm."""
        recorded = dict.fromkeys(name for trial in self.everything for name in trial.measures)
        shown = [measure for measure in recorded if measure not in COSTS]
        rows = []
        for task, of_task in self.tasks.items():
            runs = {cell.label: cell.runs for cell in of_task}
            runs |= {baseline.solver: (baseline,) for baseline in of_task[0].baselines}
            for name, trials in runs.items():
                means = {measure: mean(trial[measure] for trial in trials) for measure in shown}
                rows.append({"task": task, "by": name} | means)
        table = pd.DataFrame(rows, columns=["task", "by", *shown]).set_index(["task", "by"])
        return StyledTable(table.droplevel("task") if len(self.tasks) < 2 else table)

    def examples(self, cell: str = "") -> pd.DataFrame:
        """Answers of a cell's first replicate that a person can read, beside the right answers.

        Empty for tasks whose answers are numbers. Raises ValueError for an unknown cell.
        """
        runs = self.cell_named(cell).runs
        rows = runs[0].examples if runs else []
        return StyledTable(pd.DataFrame(rows, columns=["given", "answer", "wanted"]).set_index("given"))

    def claims(self) -> pd.DataFrame:
        """The claims of the study's file with their verdicts, corrected for their number."""
        claims = judged_claims(self)
        return CaptionedTable(claims_table(claims), claim_notes(claims))

    def laws(self, hold_out: HoldOut | None = None) -> pd.DataFrame:
        """The laws that the study asks for: rate with interval, predicted rate, verdict; or why there is no law.

        With `hold_out`, laws without a held-out test hold out values afterwards: how many of the largest, or which.
        """
        fitted, unfitted = study_laws(self, hold_out)
        return frame(LAW_COLUMNS, fitted, [vars(law) | {"cell": law.cell or "all"} for law in unfitted])

    def times(self, *levels: float) -> pd.DataFrame:
        """The steps, FLOPs and seconds until the validation regret of each cell is below each level.

        The numbers are medians over the runs. A run that never reaches a level counts as later than all others.
        """
        return frame(TIME_COLUMNS, times_to_levels(self, levels) if self.trained else ())

    def optimum(self, path: str, of: str = "regret") -> pd.DataFrame:
        """The value of a numeric setting with the least measure at T, with its interval, and the cost of the cells.

        Raises ValueError for an unknown setting.
        """
        known = independent_axes(self, least=1)
        if path not in known and not self.missing:
            raise ValueError(f"{path} is no numeric axis of {self.name}; {one_of(path, known)}")
        return frame(OPTIMUM_COLUMNS, [] if self.missing else optima(self, path, of))

    def answer(self) -> Sentences:
        """The answer in words."""
        return Sentences([self.missing] if self.missing else study_findings(self).sentences)

    def undecided(self) -> pd.DataFrame:
        """The open questions, with the replicates or values that would decide them, and their cost."""
        return frame(QUESTIONS, study_findings(self).open if self.trained else ())

    def task_names(self) -> list[str]:
        """The names of the tasks for the argument `task` of figures; one empty name for a single task."""
        return list(self.tasks) or [""]

    def against_loops(self, task: str | None = None, of: Literal["error", "regret"] = "error") -> go.Figure:
        """Error (or regret) after every loop or layer, beside classical algorithms and the least possible error."""
        return self._figure(lambda: curves.against_loops(self, self.cells_of_task(task), of))

    def against_points(self, task: str | None = None, of: Literal["error", "regret"] = "error") -> go.Figure:
        """Error (or regret) at loop T against the pairs seen before the query."""
        return self._figure(lambda: curves.against_points(self, self.cells_of_task(task), of))

    def against_rounds(
        self, task: str | None = None, of: Literal["play_regret", "play_regret_greedy"] = "play_regret"
    ) -> go.Figure:
        """The cumulative pseudo-regret of play against rounds; a text in older records, which have the sum alone."""
        if not self.missing and not any(run.curve.played for run in self.everything):
            return missing_figure(NO_ROUNDS)
        return self._figure(lambda: curves.against_rounds(self, self.cells_of_task(task), of))

    def replicates(self, task: str | None = None) -> go.Figure:
        """The mean of every cell with its interval, and the single runs."""
        return self._figure(lambda: cells.replicates(self, self.cells_of_task(task)))

    def against_axis(self, path: str, of: str = "error", only: Mapping[str, Any] | None = None) -> go.Figure:
        """A measure at T against one numeric setting, such as `training.loops`, beside the classical algorithms.

        `only` restricts the cells to these settings. Raises ValueError for an unknown setting or measure.
        """
        known = independent_axes(self, least=1)
        if path not in known:
            raise ValueError(f"{path} is no numeric axis of {self.name}; {one_of(path, known)}")
        return self._figure(lambda: settings.against_axis(self, path, of, only))

    def matched_along(
        self, path: str, algorithm: str = "", query: Query = "last", task: str | None = None
    ) -> go.Figure:
        """The steps of an iterative algorithm that match the nets' error, with the steps that a theorem allows.

        Parameters
        ----------
        path
            A numeric setting such as `task.layers`, or `point` for every number of pairs before the query.
        algorithm
            Its name in the table of matched steps. It is optional if there is a single one.
        query
            The error: of the last query, or the mean over queries. Along `point`, each query has its own error.
        task
            The task of a figure along `point`, one of `task_names()`.

        Raises
        ------
        ValueError
            For an unknown axis, algorithm or task.
        """
        known, axes = matched.iterative_algorithms(self), ["point", *independent_axes(self, least=1)]
        if path not in axes and not self.missing:
            raise ValueError(f"{path} is no numeric axis of {self.name}; {one_of(path, axes)}")
        name = algorithm or (known[0] if len(known) == 1 else "")
        if name not in known and not self.missing:
            problem = (
                f"there is no iterative algorithm {name!r}"
                if name
                else "there is no single iterative algorithm"
            )
            raise ValueError(f"{problem}; {one_of(name, known) if known else 'the records have none'}")
        if path == "point":
            return self._figure(lambda: matched.matched_by_point(self, self.cells_of_task(task), name))
        return self._figure(lambda: matched.matched_along(self, path, name, query))

    def heat_map(self, x: str, y: str) -> go.Figure:
        """Mean error over two crossed settings, with intervals in hover."""
        return self._figure(lambda: cells.heat_map(self, x, y))

    def against_references(self, task: str | None = None) -> go.Figure:
        """Error after every loop on the exact references of a task; by default of the first task."""
        of_task = self.tasks.get(task or next(iter(self.tasks), ""), [])
        return self._figure(lambda: curves.against_references(self, of_task))

    def law(self, of: str, along: str) -> go.Figure:
        """The study's laws of one measure along an axis, with data, fit and theory.

        Raises ValueError for a law that the study does not ask for.
        """
        asked = [(measure_of(law), law["along"]) for law in self.study.get("laws") or []]
        if (of, along) not in asked:
            known = [" along ".join(pair) for pair in asked]
            remedy = one_of(f"{of} along {along}", known) if known else "it asks for none"
            raise ValueError(f"{self.name} asks for no law of {of} along {along}; {remedy}")

        laws = [law for law in study_laws(self)[0] if (law.of, law.along) == (of, along)]
        return self._figure(lambda: law_figure(laws) if laws else go.Figure())

    def learning(self) -> go.Figure:
        """The validation error, by training step, of the runs that answer for each cell."""
        return self._figure(lambda: tuning.learning_curves(self))

    def along_training(self, solver: str, of: Literal["match", "similarity"] = "match") -> go.Figure:
        """The iterate of a solver that the nets match along training, or their similarity to this iterate.

        A text in records of studies without `training.similar_to`. Raises ValueError for another solver.
        """
        known = [] if self.missing else similarity.compared_solvers(self)
        if not self.missing and not known:
            return missing_figure(NOT_COMPARED)
        if known and solver not in known:
            raise ValueError(f"{solver} is no solver that nets were compared with; {one_of(solver, known)}")
        draw = similarity.matches_along_training if of == "match" else similarity.similarity_along_training
        return self._figure(lambda: draw(self, solver))

    def emergence(self, path: str | None = None) -> go.Figure:
        """The share of runs on the plateau, by training step: one line for each cell, or for each value of a setting.

        Raises ValueError for an unknown setting.
        """
        known = dict.fromkeys(name for cell in self.cells for name in cell.values)
        if path is not None and path not in known:
            raise ValueError(f"{path} is no scientific setting of {self.name}; {one_of(path, known)}")
        return self._figure(lambda: emergence.on_plateau(self, path))

    def pareto(self, basis: CostBasis = "flops", task: str | None = None) -> go.Figure:
        """Regret against the cost of training (`flops` or `seconds`), with the front of all cells."""

        def draw() -> go.Figure:
            self.cells_of_task(task)  # refuses an unknown task
            of_task = (front for front in fronts(self, basis) if front.task == (task or ""))
            return next(map(cost_front, of_task), go.Figure())

        return self._figure(draw)

    def pareto_table(self, basis: CostBasis = "flops") -> pd.DataFrame:
        """The cell that is best between which costs of training, by task."""
        made = [] if self.missing else fronts(self, basis)
        return frame(PARETO_COLUMNS, [stretch for front in made for stretch in stretches(front)])

    def nets(self, cell: str = "") -> Iterator[TrainedNet]:
        """The trained nets of a cell's replicates. `cell` is a label or a key, and is optional for a single cell.

        Raises ValueError for an unknown cell, StoreError if the weights are missing. A study without trials has none.
        """
        if not self.missing and self.store:
            yield from trained_nets(self, self.cell_named(cell))

    def figures(self, kind: str) -> dict[str, go.Figure]:
        """The figures of one kind as the study's report has them, by title. `kind` may be a kind of a plugin.

        Raises ValueError for an unknown kind.
        """
        known = Figure.member(kind)
        if known is None:
            raise ValueError(f"there is no figure {kind!r}; {one_of(kind, Figure.choices())}")
        if self.missing:
            return {self.name: missing_figure(self.missing)}
        study = Reported(self, study_laws(self)[0])
        return {drawn.title: ready_figure(drawn.figure) for drawn in figures_of_kind(study, known)}

    def cell_named(self, name: str = "") -> CellResult:
        """The cell of this label or key. Raises ValueError for an unknown cell."""
        for cell in self.cells:
            if name in (cell.key, cell.label) or (not name and len(self.cells) == 1):
                return cell
        problem = f"there is no cell {name!r}" if name else "there are several cells"
        raise ValueError(f"{problem}; {one_of(name, [cell.label for cell in self.cells])}")

    def cells_of_task(self, task: str | None) -> list[CellResult]:
        """The cells on one task. Raises ValueError for an unknown task, or if several tasks exist and none is named."""
        if task is None and len(self.tasks) < 2:
            return self.answered
        if task not in self.tasks:
            problem = "there are several tasks" if task is None else f"there is no task {task!r}"
            raise ValueError(f"{problem}; give task=, {one_of(task or '', self.tasks)}")
        return self.tasks[task]

    def _figure(self, draw: Callable[[], go.Figure]) -> go.Figure:
        return missing_figure(self.missing) if self.missing else ready_figure(draw())


def answer(*studies: "StudyResults | str | Path") -> Sentences:
    """The answer of one or several studies in at most two sentences: the verdicts of their claims and of their laws.

    Studies without claims and laws have one sentence on the best cell of the first study.

    Parameters
    ----------
    studies
        Results, or names and files as `results` takes them.
    """
    read = [study if isinstance(study, StudyResults) else results(study) for study in studies]
    missing = [study.missing for study in read if study.missing]
    present = [study for study in read if not study.missing]
    claims = [claim for study in present for claim in judged_claims(study)]
    laws = [law for study in present for law in study_laws(study)[0]]
    sentences = verdict_sentences(claims, laws)
    if present and not sentences:
        sentences = answer_sentences(study_findings(present[0]))[:1]
    return Sentences([*sentences, *missing])


def laws_of_studies(*studies: StudyResults) -> pd.DataFrame:
    """The laws of several studies in one table, by study: rates with intervals, predictions, verdicts."""
    tables = [study.laws().reset_index().assign(study=study.name) for study in studies if not study.missing]
    if not tables:
        return pd.DataFrame(columns=["study"])
    together = pd.concat([table.astype(object) for table in tables], ignore_index=True)
    return StyledTable(together.set_index(["study", "cell"]))


def count_verdicts(*studies: StudyResults) -> Sentences:
    """The number of laws with each verdict over several studies, and the studies without records."""
    missing = [study.missing for study in studies if study.missing]
    if len(missing) == len(studies):
        return Sentences(missing)
    laws = [law for study in studies if not study.missing for law in study_laws(study)[0]]
    predicted = [law for law in laws if law.predicted is not None]
    words = [law.judgement.verdict for law in predicted if law.judgement]
    counts = ", ".join(
        f"{words.count(word)} {word}" for word in (*RATE_VERDICTS, NO_LAW, NOT_LEARNT) if word in words
    )
    text = f"{len(laws)} laws are fitted; theory predicts the rate of {len(predicted)}"
    return Sentences([f"{text}: {counts}." if counts else f"{text}.", *missing])


def ready_figure(figure: go.Figure) -> go.Figure:
    """The figure as readers see it (`figures.panels`). An empty figure says that it is empty."""
    if not shows_values(figure):
        return missing_figure("Too little has finished for this figure.")
    return finished(figure)


def missing_figure(missing: str) -> go.Figure:
    """An empty figure with the text `missing`."""
    figure = blank("", "", log_x=False)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, type="linear")
    figure.update_layout(height=160)
    where = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    text = safe(visible(missing)).replace(": ", ":<br>", 1)
    figure.add_annotation(text=text, font={"size": 15}, **where)
    return figure
