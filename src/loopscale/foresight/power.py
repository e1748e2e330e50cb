"""Power: the chance that a planned study gives a verdict on its laws and claims, computed before anything is trained.

The code that later judges computes the chances (`loopscale.stats.power`), with the noise of earlier runs. There are two
questions: what if theory is exact, and what if theory is off by a quarter. Each question has two chances: if all runs
learn, and with the expected learning within the steps of the study. A law is not judged if one of its runs has not
learnt, so the chance that all runs learn is a factor of the second chance. A claim compares the seeds at which its nets
have learnt, so it has fewer replicates in effect.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from loopscale.core.config import leaves
from loopscale.foresight.learning_times import (
    ExpectedLearning,
    PlannedRuns,
    shipped_times,
)
from loopscale.foresight.noise import KnownNoise, Noise
from loopscale.foresight.recipes import Covariates, Recipe
from loopscale.questions.axes.base import LawAxis, axis_of
from loopscale.questions.claim import ClaimSpec, SolverSide
from loopscale.questions.law import LawSpec
from loopscale.stats.contrasts import half_widths
from loopscale.stats.fitting import EFFICIENCY, Fit, clean
from loopscale.stats.forms.base import Form, variants
from loopscale.stats.looks import LookSchedule
from loopscale.stats.milestones import is_milestone
from loopscale.stats.power import (
    OFF,
    PlannedClaim,
    PlannedCurveLaw,
    PlannedLaw,
    Power,
    ReplicateNoise,
    claim_power,
    law_power,
    percent,
)
from loopscale.stats.verdict_rule import LEAST_VALUES
from loopscale.studies.axes import cells_along, varied_along
from loopscale.studies.cells import Cell
from loopscale.studies.held_out import setting_of_cell
from loopscale.studies.spec import Study
from loopscale.theory.prediction import missing_theory, predict
from loopscale.training.cost import training_flops

DRAWS = 2_000
"""Simulated studies of each question. The standard error of a chance is at most 1.1 %."""
SURE = 0.8
"""A question with at least this chance of a verdict is decidable."""
NAMED = 3
"""Questions named in one sentence."""
NO_THEORY = "there is no theory to judge by"
ONE_REPLICATE = "a cell has one replicate, and a verdict needs 2"
LEAST_NAMED = 0.01
"""Smaller chances are given as at most this chance."""
CANNOT_BE_DECIDED = "cannot be decided"
HOPELESS = 0.2
"""A question with at most this chance of a verdict cannot be decided."""

ASSUMPTIONS = {
    "law": ("theory is exact", "theory is a quarter off"),
    "claim": ("both sides are level", "the first side has a quarter less"),
}


@dataclass(frozen=True)
class QuestionPower:
    """The power of one law or claim. A law that is fitted in several groups of cells has one for each group.

    Theory is exact for a claim if both sides are the same, and off by a quarter if the first side has a quarter less.
    """

    kind: Literal["law", "claim"]
    question: str
    """The measure and the axis of the law, or the text of the claim."""
    statement: str
    """The sentence that has the verdict of a claim; empty for a law."""
    against: str
    """The object of the verdict: the kind of the bound, or the two sides."""
    runs: int
    """The number of runs that must learn for a verdict."""
    all_learn: float
    """The chance that all these runs learn."""
    noise: KnownNoise
    """The noise of one run."""
    learning: tuple[ExpectedLearning, ...] = ()
    """The expected share of learnt runs, by task and model; empty if a run that has not learnt is judged too."""
    power: Power | None = None
    """The power if all runs of the study learn; None if there is no verdict."""
    expected: tuple[float, float] | None = None
    """The chances of the two right verdicts of a claim with the expected learning. None for a law, and if all learn."""
    half_width: float | None = None
    """Half the expected 95 % interval of the law's rate; None for a claim."""
    because: str = ""
    """The reason if there is no verdict at all."""

    @property
    def name(self) -> str:
        """The question, and for a law the bound that judges the law."""
        return f"{self.question}, {self.against}" if self.kind == "law" and self.against else self.question

    @property
    def exact(self) -> float:
        """The chance of the right verdict if theory is exact, with the expected learning."""
        return self._expected[0]

    @property
    def off(self) -> float:
        """The chance of the right verdict if theory is off by a quarter, with the expected learning."""
        return self._expected[1]

    @property
    def if_learnt(self) -> tuple[float, float]:
        """The two chances if all runs learn."""
        return (self.power.chance_exact, self.power.chance_off) if self.power else (0.0, 0.0)

    @property
    def _expected(self) -> tuple[float, float]:
        exact, off = self.if_learnt
        return self.expected or (self.all_learn * exact, self.all_learn * off)

    @property
    def outlook(self) -> str:
        """The expected verdict, in words."""
        if self.power is None:
            return "no verdict"
        best = max(self.exact, self.off)
        if best <= HOPELESS:
            return CANNOT_BE_DECIDED
        return "decidable" if min(self.exact, self.off) >= SURE else "may stay undecided"

    def document(self) -> dict[str, Any]:
        """Plain data, as in JSON."""
        return asdict(self) | {"chance_exact": self.exact, "chance_off": self.off, "outlook": self.outlook}


@dataclass(frozen=True)
class QuestionFamily:
    """The powers of one law over all its groups of cells."""

    powers: tuple[QuestionPower, ...]

    @property
    def first(self) -> QuestionPower:
        return self.powers[0]

    @property
    def judged(self) -> tuple[QuestionPower, ...]:
        """The groups that get a verdict."""
        return tuple(power for power in self.powers if power.power)

    @property
    def likeliest(self) -> QuestionPower:
        """The group with the greatest chance of a verdict."""
        return max(self.powers, key=lambda power: max(power.exact, power.off))


def families(powers: Sequence[QuestionPower]) -> list[QuestionFamily]:
    """The powers by question, in the order of the study."""
    groups = dict[tuple[str, str], list[QuestionPower]]()
    for power in powers:
        groups.setdefault((power.question, power.against), []).append(power)
    return [QuestionFamily(tuple(group)) for group in groups.values()]


def power_remarks(powers: Sequence[QuestionPower], replicates: int) -> Iterator[str]:
    """Yield one sentence for the laws, and one for the claims, that cannot be decided, or that may stay undecided.

    Parameters
    ----------
    replicates
        The replicates of a cell; with `until: decided` the most.
    """
    groups = dict[tuple[str, str], list[QuestionPower]]()
    for family in families(powers):
        likely = family.likeliest
        if likely.power is not None and likely.outlook != "decidable":
            groups.setdefault((likely.kind, likely.outlook), []).append(likely)
        elif likely.because == NO_THEORY:
            groups.setdefault((likely.kind, NO_THEORY), []).append(likely)
    for (kind, outlook), questions in groups.items():
        named = [_known(question) for question in questions[:NAMED]] + ["..."] * (len(questions) > NAMED)
        number, verb = (f"{len(questions)} {kind}s", "get") if len(questions) > 1 else (f"1 {kind}", "gets")
        if outlook == NO_THEORY:
            text = f"{number} {verb} no verdict, because {NO_THEORY} ({'; '.join(named)})"
            axes = dict.fromkeys(question.question.partition(" along ")[2] for question in questions)
            text += "".join(f"; {why}" for axis in axes if (why := missing_theory(axis)))
        else:
            hopeless = outlook == CANNOT_BE_DECIDED and kind == "claim"  # at the assumed difference
            what = "will show only a large difference" if hopeless else outlook
            text = f"with {replicates} replicates, {number} {what} ({'; '.join(named)}): {_chances(kind, questions)}"
            text += _learning(kind, questions)
        yield text


def _chances(kind: str, questions: Sequence[QuestionPower]) -> str:
    """The chances of a verdict, and the replicates that a probable verdict takes."""
    chances = [(each.exact, each.off) for each in questions]
    needed = [each.power.replicates_off for each in questions if each.power]
    known = [count for count in needed if count is not None]
    takes = f"; {max(known):,} replicates would give {percent(SURE)}" if len(known) == len(needed) else ""
    return f"the chance of a verdict is at most {_largest(kind, chances)}{takes}"


def _largest(kind: str, chances: Sequence[tuple[float, float]]) -> str:
    """The largest chances under both assumptions. A claim that cannot be level has one chance."""
    ends = [max(*of_both, LEAST_NAMED) for of_both in zip(*chances, strict=True)]
    texts = [f"{percent(chance)} if {text}" for chance, text in zip(ends, ASSUMPTIONS[kind], strict=True)]
    can_be_level = any(exact for exact, _ in chances)
    return " and ".join(texts if kind == "law" or can_be_level else texts[1:])


def _known(question: QuestionPower) -> str:
    """The name of a question. A rate that nothing judges has its expected interval."""
    if question.because == NO_THEORY and question.half_width:
        return f"{question.name}, whose rate will be known to ±{question.half_width:.2g}"
    return question.name


def _learning(kind: str, questions: Sequence[QuestionPower]) -> str:
    """How often all runs learn, and the chances if they do. Empty if they nearly always learn."""
    learn = min(question.all_learn for question in questions)
    if learn >= SURE:
        return ""
    if_learnt = _largest(kind, [each.if_learnt for each in questions])
    return f"; all runs learn in {percent(learn)} of such studies, and then the chance is at most {if_learnt}"


def study_power(study: Study, noise: Noise) -> tuple[QuestionPower, ...]:
    """The power of every law and claim of a study, in the order of the file. Equal plans are computed once.

    With `until: decided` a claim has the power of all looks together, and a law the power of the last look.
    """
    schedule = study.until.schedule(study.replicates) if study.until else None
    study = study.model_copy(update={"replicates": schedule.seeds[-1]}) if schedule else study
    laws = (power for spec in study.laws for power in _law_powers(study, spec, noise))
    return *laws, *(_claim_power(study, claim, noise, schedule) for claim in study.claims)


def _claim_power(
    study: Study, claim: ClaimSpec, noise: Noise, schedule: LookSchedule | None
) -> QuestionPower:
    pairs = claim.pairs(study.cells())
    cells = list({cell.key: cell for pair in pairs for cell in pair}.values())
    of_runs = [_noise_of(study, cell, claim.measure, noise) for cell in cells or study.cells()[:1]]
    runs = study.replicates * len(of_runs)
    against = next((str(side.settings["kind"]) for side in claim.sides if isinstance(side, SolverSide)), "")
    chance, learning = _learning_of(study, cells or study.cells()[:1], claim.measure, noise)
    question = QuestionPower(
        "claim", claim.text, claim.statement, against, runs, chance, of_runs[0], learning
    )
    if not pairs:
        return replace(question, because="a side names no single cell")
    if len(cells) < sum(map(len, pairs)):
        return replace(question, because="the noise between two numbers of loops of one net is not known")
    if study.replicates < 2:
        return replace(question, because=ONE_REPLICATE)
    plan = PlannedClaim(
        study.replicates,
        _mean_noise([each.noise for each in of_runs]),
        cells=len(study.cells()),
        rule=claim.rule,
        claims=len(study.claims),
        paired=not against,
        pairs=len(pairs),
    )
    power = _power_of(plan)
    if schedule:
        plan = replace(plan, looks=schedule)
        exact, off = _chances_of(plan)
        power = replace(power, exact=exact, off=off, chance_exact=exact["level"], chance_off=off["less"])
    if chance == 1:
        return replace(question, power=power)
    planned = planned_runs(study, cells)
    once, twice = (
        round(
            shipped_times().chance_that_all_learn(
                [replace(each, runs=count) for each in planned], noise.recorded
            ),
            4,
        )
        for count in (1, 2)
    )
    exact, off = _chances_of(replace(plan, learn=(once, twice)))
    return replace(question, power=power, expected=(exact["level"], off["less"]))


def planned_runs(study: Study, cells: Sequence[Cell]) -> list[PlannedRuns]:
    """The replicates of some cells whose tasks have a floor."""
    tasks, trials = study.tasks(), study.layout.trials
    return [
        PlannedRuns(
            cell.label,
            tasks[cell.key].kind,
            trials[cell.key].model.kind,
            trials[cell.key].training.steps,
            study.replicates,
            Recipe.of_trial(trials[cell.key]),
            Covariates.of_trial(trials[cell.key]),
        )
        for cell in cells
        if tasks[cell.key].floor_rule is not None
    ]


def _learning_of(
    study: Study, cells: Sequence[Cell], of: str, noise: Noise
) -> tuple[float, tuple[ExpectedLearning, ...]]:
    """The chance that all replicates of some cells learn, and the expected shares. 1 if the verdict needs none."""
    planned = [] if is_milestone(of) else planned_runs(study, cells)
    shares = tuple(shipped_times().expected_learning(planned, noise.recorded))
    return shipped_times().chance_that_all_learn(planned, noise.recorded), shares


def _noise_of(study: Study, cell: Cell, of: str, noise: Noise) -> KnownNoise:
    """The noise of a cell's runs. Without a known floor the regret is the error."""
    trial, task = study.layout.trials[cell.key], study.task(cell.key)
    measure = of.replace("regret", "error") if task.floor_rule is None else of
    return noise.find(task.kind, trial.model.kind, measure)


def _mean_noise(noises: Sequence[ReplicateNoise]) -> ReplicateNoise:
    """The mean noise of the two sides, if all runs learn. The variance of a difference stays the same."""
    sd, seed_sd = (
        math.sqrt(sum(value**2 for value in values) / len(noises))
        for values in ([each.sd for each in noises], [each.seed_sd for each in noises])
    )
    return ReplicateNoise(sd, seed_sd)


def _law_powers(study: Study, spec: LawSpec, noise: Noise) -> Iterator[QuestionPower]:
    axis = axis_of(spec.along)
    if axis.curve:
        groups = {cell.label: [cell] for cell in study.cells()}
    elif axis.measured:
        groups = {"": list(study.cells())}
    else:
        groups = cells_along(study.cells(), varied_along(study.cells(), spec.along))
    for cells in groups.values():
        yield _law_power(study, spec, cells, noise)


def _law_power(study: Study, spec: LawSpec, cells: Sequence[Cell], noise: Noise) -> QuestionPower:
    first, trials, tasks = cells[0].key, study.layout.trials, study.tasks()
    kinds, axis = (tasks[first].kind, trials[first].model.kind), axis_of(spec.along)
    of_run = noise.find(*kinds, spec.measure)
    x = _places(study, axis, cells)
    runs = study.replicates * (1 if axis.curve else len(x))
    theory = str(spec.theory["kind"]) if spec.theory else ""
    chance, learning = _learning_of(study, cells, spec.measure, noise)
    question = QuestionPower(
        "law", f"{spec.measure} along {spec.along}", "", theory, runs, chance, of_run, learning
    )
    learnt = replace(of_run.noise, learnt=1.0)
    if axis.curve:
        relative = noise.find(*kinds, axis.rate_measure)
        question = replace(question, noise=relative)
    elif len(x) >= 2 and study.replicates > 1:
        form = _straight(_forms(spec))
        question = replace(question, half_width=_half_width(form, x, study.replicates, learnt.sd))
    if why := _no_verdict(study, spec, x):
        return replace(question, because=why)
    try:
        settings = dict(leaves(trials[first].settings | {"task": tasks[first].model_dump(mode="json")}))
        course = predict(spec.theory or {}, settings, spec.along, x, spec.measure)
        form, predicted = _predicted(_forms(spec), x, course, axis.curve)
    except ValueError as problem:
        return replace(question, because=str(problem).splitlines()[0].partition("; its settings")[0])
    plan: PlannedLaw | PlannedCurveLaw
    if axis.curve:
        sd = abs(predicted) * question.noise.noise.total
        plan = PlannedCurveLaw(study.replicates, len(study.cells()), sd, predicted, predicted, form)
    else:
        plan = PlannedLaw(x, study.replicates, learnt, predicted, predicted, form)
    return replace(question, power=_power_of(plan))


@cache
def _chances_of(plan: PlannedClaim) -> tuple[dict[str, float], dict[str, float]]:
    """The chances of each verdict without an effect, and with an effect of a quarter."""
    return plan.chances(DRAWS), replace(plan, effect=math.log1p(-OFF)).chances(DRAWS)


@cache
def _power_of(plan: PlannedLaw | PlannedCurveLaw | PlannedClaim) -> Power:
    return claim_power(plan, DRAWS) if isinstance(plan, PlannedClaim) else law_power(plan, DRAWS)


def _places(study: Study, axis: LawAxis, cells: Sequence[Cell]) -> tuple[float, ...]:
    """The values on the axis, ascending. Along a curve, those of the first cell."""
    trials, shared, first = study.layout.trials, study.layout.shared_settings, cells[0].key
    if axis.curve:
        return tuple(axis.curve_places(trials[first].steps_per_prompt, study.task(first).seen))

    def value(cell: Cell, name: str) -> object:
        return training_flops(trials[cell.key]) if name == "flops" else setting_of_cell(cell, shared, name)

    places = [axis.place(partial(value, cell)) for cell in cells]
    return tuple(sorted({place for place in places if math.isfinite(place)}))


def _no_verdict(study: Study, spec: LawSpec, x: Sequence[float]) -> str:
    """The reason if no data give the law a verdict; otherwise empty."""
    if spec.theory is None:
        return NO_THEORY
    if len(x) < LEAST_VALUES:
        return f"the axis has {len(x)} values, and a verdict needs {LEAST_VALUES}"
    if study.replicates < 2:
        return ONE_REPLICATE
    return ""


def _predicted(
    forms: Sequence[str], x: Sequence[float], course: Sequence[float], curve: bool
) -> tuple[str, float]:
    """The form that fits the theory's course best, and the rate of this fit.

    Along an axis only forms of two parameters count. A third parameter, or a choice of forms, can only lower the power.
    """
    shapes = [shape for form in forms for shape in variants(form)] if curve else [_straight(forms)]
    fits = list[Fit]()
    for shape in shapes:
        data = clean(shape, x, course, np.arange(len(x)))
        if len(np.unique(data.x)) >= max(shape.size, 2):
            fits.append(Fit.of(shape, data))
    if not fits:
        raise ValueError("the prediction is not positive")
    best = min(fits, key=lambda fit: fit.aicc())
    return best.form.kind, best.rate


def _forms(spec: LawSpec) -> tuple[str, ...]:
    return tuple(spec.model_dump()["form"])


def _straight(forms: Sequence[str]) -> Form:
    """The first form with two parameters; without one, a power."""
    straight = [shape for form in forms for shape in variants(form) if shape.size == 2]
    return straight[0] if straight else variants("power")[0]


def _half_width(form: Form, x: Sequence[float], replicates: int, sd: float) -> float:
    """Half the expected 95 % interval of a rate."""
    axis = form.transform(np.array(x))
    length = math.sqrt(float(np.sum((axis - axis.mean()) ** 2)) * replicates * EFFICIENCY)
    return float(half_widths(sd, len(x) * (replicates - 1))) / length
