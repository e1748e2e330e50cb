"""Looks of a study with `until: decided`: which questions are decided, and which cells get more or longer runs.

The questions are the claims, and the laws beside which a theory stands. A look takes place when nothing runs and every
ordered replicate is over. All open questions are then judged together, so the number of workers changes no decision.
The rules are:

- A question with a verdict gets no more replicates. A claim holds, does not hold or is level. A law agrees with theory,
  or is faster or slower.
- A futile question gets no more replicates. Replicates that another question orders may still decide it.
- A claim compares the runs that have learnt, seed by seed. The counts of learnt runs are a question of their own, with
  looks at the same seeds. The claim is decided if the ratio is, and otherwise if the counts show that one side learns
  more often. The claim is futile if neither will probably be decided.
- A claim is "not learnt" while too few runs have learnt for a ratio. A law is "not learnt" if a run of its cells stands
  on the plateau: without this run its cells would be selected. Such a law gets no more replicates.
- `until.steps` permits longer trainings. A question that is not learnt orders them. An open question orders them too if
  at least half of its runs have not learnt, or still improve.
- A longer training has twice the steps, and starts anew with a complete schedule. All cells that questions connect are
  trained for longer together, so that each question compares equal steps. All questions of these cells are judged
  again, from the first look on, and only on the longer trainings.
- `until.values` holds cells in reserve. An undecided law orders these cells if they decide the law for fewer FLOPs than
  replicates. The law's second question, with the cells in reserve, then takes the place of the first one. The second
  question has looks of its own, from the first look on.
- All other questions get the replicates of the next look, in their own cells only.
- A replicate that diverges has no error. The cells of the question get another seed instead, for up to half of the
  look's replicates.
- A look waits for replicates that ended by a fault of the machine or the code. The next run trains these replicates.

The decisions are a function of the records, and are recorded before the ordered replicates start. A driver that dies
therefore changes no decision.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from loopscale.questions.until import family_hash, in_reserve
from loopscale.records.decisions import Decision, Step, decision_note, recorded_decisions
from loopscale.records.model import OVER, Note
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.live_runs import CurveReader, LiveRuns
from loopscale.runner.decide.questions import ClaimQuestions, Judged, LawQuestions
from loopscale.stats.looks import LookSchedule
from loopscale.studies.spec import Study

NAMED = 3
"""Open questions named in one sentence."""


@dataclass
class LookResult:
    """The result of one look: what to record, and the cells that get more replicates."""

    decisions: list[Decision]
    cells: set[str]

    def note(self) -> Note:
        """The note that records the decisions."""
        return decision_note(self.decisions)


class StudyLooks:
    """Judges the questions of a study at each look, and orders replicates."""

    def __init__(
        self,
        study: Study,
        cell_runs: Mapping[str, CellRun],
        baselines: Mapping[str, Job],
        tags: Mapping[str, str],
        read_curve: CurveReader,
    ) -> None:
        """Restore the orders of the decisions among the `tags` of the study's parent run."""
        assert study.until is not None
        self._cell_runs, self._baselines, self.read_curve = dict(cell_runs), baselines, read_curve
        self.schedule: LookSchedule = study.until.schedule(study.replicates)
        laws = LawQuestions(study, self.schedule, self._cell_runs)
        self._families = (
            ClaimQuestions(
                study,
                self.schedule,
                self._cell_runs,
                partial(LiveRuns, study, self.schedule, self._cell_runs, baselines, read_curve),
            ),
            laws,
        )
        self._second = laws.second
        """The second question of each law with cells in reserve, by the identity of the first one."""
        for cell_run in cell_runs.values():
            cell_run.in_reserve = in_reserve(study.until, cell_run.cell.values)
        self._cells = {
            identity: cells
            for family in self._families
            for identity, cells in zip(family.identities, family.cells(), strict=True)
        }
        """The cells of each question, by the identity of the question."""
        self._texts = {
            identity: text
            for family in self._families
            for identity, text in zip(family.identities, family.texts, strict=True)
        }
        self._family = family_hash(study.model_dump(mode="json"))
        recorded = recorded_decisions(tags)
        self._last = {decision.question: decision for decision in recorded}
        """The last decision on each question."""
        for decision in recorded:
            for key in decision.cells:
                if cell_run := self._cell_runs.get(key):
                    cell_run.order(decision.replicates, decision.next_factor)
        self._longest, last = study.until.steps, self.schedule.seeds[-1]
        replaced = [
            decision.question
            for decision in recorded
            if decision.step == "values" and decision.question in self._second
        ]
        seconds = {question.identity for question in self._second.values()}
        first = {name: cells for name, cells in self._cells.items() if name not in seconds}
        of_first = [decision for decision in recorded if decision.question not in seconds]
        self._groups = [self._restore(questions, of_first) for questions in connected(first)]
        for group in self._groups:
            group.questions = tuple(name for name in group.questions if name not in replaced)
        for name in dict.fromkeys(replaced):
            second = self._second[name].identity
            own = [decision for decision in recorded if decision.question == second]
            self._groups.append(replace(self._restore([second], own), apart=True))
        factors = {identity: group.steps_factor for group in self._groups for identity in group.questions}
        self._over = {
            decision.question
            for decision in recorded
            if decision.steps_factor == factors.get(decision.question)
            and (decision.over or (decision.step == "most" and decision.seeds >= last))
        }
        """The identities of questions that get no more runs."""

    def _restore(self, questions: Sequence[str], recorded: Sequence[Decision]) -> "Group":
        """The group of some questions as the decisions have left it. Its cells get the steps of the longest of them."""
        cells = {run.cell.key: run for identity in questions for run in self._cells[identity]}
        factor = max((cell_run.steps_factor for cell_run in cells.values()), default=1)
        for cell_run in cells.values():
            cell_run.order(0, factor)
        asked = [
            decision.replicates or decision.seeds
            for decision in recorded
            if decision.next_factor == factor and (factor == 1 or not cells.keys().isdisjoint(decision.cells))
        ]
        return Group(tuple(questions), tuple(cells), factor, self._index(max(asked, default=0)))

    @property
    def is_over(self) -> bool:
        """True if no question gets more replicates."""
        return not self._open()

    @property
    def open_words(self) -> str:
        """The questions that would get more replicates, with the runs that their verdicts take. Empty without any."""
        texts = [f"{text} ({self._outlook(identity)})" for identity, text in self._open().items()]
        if not texts:
            return ""
        number = f"{len(texts)} questions stay" if len(texts) > 1 else "1 question stays"
        return f"{number} open: {'; '.join(texts[:NAMED] + ['...'] * (len(texts) > NAMED))}"

    def _outlook(self, identity: str) -> str:
        last = self._last.get(identity)
        if last is None:
            return f"the first look takes {self.schedule.seeds[0]} replicates"
        if last.step == "longer":
            return f"{last.verdict}, so its cells are trained at {last.next_factor} times the steps"
        needed = f"about {last.needed:,.0f}" if math.isfinite(last.needed) else "an unknown number of"
        return f"{last.verdict} after {last.seeds} replicates, a verdict takes {needed} more runs"

    def judge(self) -> LookResult:
        """Judge all questions. Call this when every ordered replicate is over.

        Nothing is judged while replicates are missing that can still be trained.
        """
        if self.is_over or self._unfinished():
            return LookResult([], set())
        if replacements := self._replace_failed():
            return LookResult([], replacements)
        judged = {result.identity: result for family in self._families for result in family.judge()}
        decisions = list[Decision]()
        cells = set[str]()
        for group in list(self._groups):
            of_group = self._decide_group(group, [judged[identity] for identity in group.questions])
            decisions += of_group
            cells |= self._apply(group, of_group)
        self._advance(decisions)
        self._last |= {decision.question: decision for decision in decisions}
        rank = {identity: place for place, identity in enumerate(judged)}
        return LookResult(sorted(decisions, key=lambda decision: rank[decision.question]), cells)

    def _decide_group(self, group: "Group", judged: Sequence[Judged]) -> list[Decision]:
        """The decisions on the open questions of a group, and new verdicts on the others.

        Replicates for other questions may decide a futile question. Its verdict is recorded too.
        """
        steps: dict[str, Step] = {result.identity: self._step(result, group) for result in judged}
        if any(steps[identity] == "longer" for identity in group.questions if identity not in self._over):
            for name in [name for name, step in steps.items() if step == "train"]:
                steps[name] = "longer"
        decisions = [self._decision(result, group, steps[result.identity]) for result in judged]
        return [
            decision
            for decision in decisions
            if decision.question not in self._over
            or (decision.step == "decided" and self._last[decision.question].verdict != decision.verdict)
        ]

    def _apply(self, group: "Group", decisions: Sequence[Decision]) -> set[str]:
        """Order the runs of the decisions. Returns the keys of the cells with an order."""
        self._over |= {
            decision.question for decision in decisions if decision.step not in ("train", "longer")
        }
        ordering = [decision for decision in decisions if decision.step in ("train", "longer", "values")]
        for decision in ordering:
            for key in decision.cells:
                self._cell_runs[key].order(decision.replicates, decision.next_factor)
            if decision.step == "values":
                second = self._second[decision.question].identity
                group.questions = tuple(name for name in group.questions if name != decision.question)
                keys = tuple(cell_run.cell.key for cell_run in self._cells[second])
                self._groups.append(Group((second,), keys, group.steps_factor, 0, apart=True))
        if any(decision.step == "longer" for decision in ordering):
            group.steps_factor, group.look = 2 * group.steps_factor, 0
            self._over.difference_update(group.questions)
        return {key for decision in ordering for key in decision.cells}

    def _advance(self, decisions: Sequence[Decision]) -> None:
        """Move groups to the next look. Groups at the steps of the study share their looks, so they move together."""
        ordering = {decision.question for decision in decisions if decision.step == "train"}
        own = [not ordering.isdisjoint(group.questions) for group in self._groups]
        together = [group.steps_factor == 1 and not group.apart for group in self._groups]
        shared = any(orders and shares for orders, shares in zip(own, together, strict=True))
        for group, orders, shares in zip(self._groups, own, together, strict=True):
            group.look += shared if shares else orders

    def _goal(self, group: "Group") -> int:
        """The replicates of the group's present look."""
        return self.schedule.seeds[group.look]

    def _index(self, replicates: int) -> int:
        """The first look with at least `replicates` seeds."""
        later = [look for look, seeds in enumerate(self.schedule.seeds) if seeds >= replicates]
        return later[0] if later else len(self.schedule.seeds) - 1

    def _unfinished(self) -> bool:
        """True if a replicate of an open question ended by a fault of the machine or the code."""
        keys = {cell_run.cell.key for identity in self._open() for cell_run in self._cells[identity]}
        jobs = (job for key in keys for job in self._cell_runs[key].jobs.values() if job.role == "replicate")
        return any(job.outcome not in OVER for job in [*jobs, *self._baselines.values()])

    def _open(self) -> dict[str, str]:
        """The texts of the open questions, by identity."""
        asked = {identity for group in self._groups for identity in group.questions} - self._over
        return {identity: text for identity, text in self._texts.items() if identity in asked}

    def _replace_failed(self) -> set[str]:
        """Order a seed for each seed of the present look that diverged. Returns the cells with such an order."""
        ordered: set[str] = set()
        for group in self._groups:
            goal = self._goal(group)
            for identity in group.questions:
                cells = self._cells[identity]
                failed, finished = _failed_seeds(cells), len(_shared_seeds(cells))
                wanted = goal + len(failed)
                over = identity in self._over or finished >= goal or len(failed) > goal / 2
                if over or not all(map(_can_replicate, cells)):
                    continue
                for cell_run in cells:
                    if cell_run.replicates < wanted:
                        cell_run.replicates = wanted
                        ordered.add(cell_run.cell.key)
        return ordered

    def _step(self, judged: Judged, group: "Group") -> Step:
        goal, may_be_longer = self._goal(group), group.steps_factor < self._longest
        if judged.decided:
            return "decided"
        if judged.verdict == "not learnt" and may_be_longer:
            return "longer"
        if judged.verdict == "not learnt" and (judged.kind == "law" or judged.futile):
            return "not learnt"
        if not judged.looked or judged.valued < goal:
            return "no data"
        if judged.falling and may_be_longer:
            return "longer"
        if judged.wants_values:
            return "values"
        if goal == self.schedule.seeds[-1]:
            return "most"
        return "futile" if judged.futile else "train"

    def _decision(self, judged: Judged, group: "Group", step: Step) -> Decision:
        replicates, cells = 0, tuple(cell_run.cell.key for cell_run in judged.cells)
        if step == "train":
            replicates = self.schedule.seeds[group.look + 1]
        elif step == "longer":
            replicates, cells = self.schedule.seeds[0], group.cells
        elif step == "values":
            replicates, cells = self.schedule.seeds[0], tuple(self._second[judged.identity].reserve)
        trained = {key: self._cell_runs[key].replicates for key in cells}
        present = trained if step == "train" else dict.fromkeys(cells, 0)
        searches = sum(self._cell_runs[key].tuning_trials for key in cells) if step == "values" else 0
        return Decision(
            question=judged.identity,
            kind=judged.kind,
            text=judged.text,
            seeds=self._goal(group),
            runs=judged.valued,
            estimate=judged.estimate,
            low=judged.low,
            high=judged.high,
            p=judged.p,
            adjusted_p=judged.adjusted_p,
            verdict=judged.verdict,
            chance=judged.chance,
            step=step,
            replicates=replicates,
            cells=cells,
            ordered=sum(max(0, replicates - count) for count in present.values()) + searches,
            needed=judged.needed,
            family=self._family,
            learnt=judged.learnt,
            steps_factor=group.steps_factor,
        )


@dataclass
class Group:
    """Questions that share cells, directly or through other questions. All their cells are trained for equal steps."""

    questions: tuple[str, ...]
    """The identities of the questions."""
    cells: tuple[str, ...]
    """The keys of the cells."""
    steps_factor: int
    """The steps of the ordered runs over the steps of the study."""
    look: int
    """The index of the present look. Each order of longer trainings begins with the first look."""
    apart: bool = False
    """True for the second question of a law, which has looks of its own beside the groups that share its cells."""


def connected(cells: Mapping[str, Sequence[CellRun]]) -> list[list[str]]:
    """The questions in groups that share no cell, in the order of the questions.

    Parameters
    ----------
    cells
        The cells of each question, by the identity of the question.
    """
    groups = list[tuple[list[str], set[str]]]()
    for identity, runs in cells.items():
        keys = {cell_run.cell.key for cell_run in runs}
        shared = [group for group in groups if not group[1].isdisjoint(keys)]
        groups = [group for group in groups if group[1].isdisjoint(keys)]
        questions = [question for group in shared for question in group[0]]
        groups.append(([*questions, identity], keys.union(*(group[1] for group in shared))))
    rank = {identity: place for place, identity in enumerate(cells)}
    found = [sorted(questions, key=rank.__getitem__) for questions, _ in groups]
    return sorted(found, key=lambda questions: rank[questions[0]])


def _can_replicate(cell_run: CellRun) -> bool:
    return bool(cell_run.best) or not cell_run.space


def _shared_seeds(cells: Sequence[CellRun]) -> set[int]:
    """The seeds that have finished in all cells."""
    first, *others = ({job.seed for job in cell_run.answers if job.seed} for cell_run in cells)
    return first.intersection(*others)


def _failed_seeds(cells: Sequence[CellRun]) -> set[int]:
    """The seeds that have ended in a cell without an error. Nothing replaces a stopped trial."""
    return {
        job.seed
        for cell_run in cells
        for job in cell_run.replicate_jobs
        if job.seed and job.state == "over" and job.outcome not in ("finished", "stopped")
    }
