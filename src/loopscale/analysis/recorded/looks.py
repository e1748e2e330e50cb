"""The looks of a study with `until: decided`: the schedule, the recorded decisions, and longer trainings in words."""

from collections.abc import Iterable, Iterator, Sequence

from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.questions.until import look_schedule
from loopscale.records.decisions import Decision, order_words, recorded_decisions
from loopscale.stats.looks import LookSchedule


def schedule_of(results: Results) -> LookSchedule | None:
    """The looks of the study; None for a study without `until: decided`."""
    return look_schedule(results.study)


def decisions_of(results: Results) -> tuple[Decision, ...]:
    """The recorded decisions of the study, in the order of its looks."""
    return recorded_decisions(results.study.get("decisions") or {})


def cells_with_looks(results: Results) -> frozenset[str]:
    """The keys of the cells whose number of replicates the results may choose: those of claims and of decided laws.

    Every other cell of a study with looks has the replicates of the first look. Empty for a study without looks.
    """
    if schedule_of(results) is None:
        return frozenset()
    of_claims = {
        cell.key for spec in results.claim_specs for pair in spec.pairs(results.cells) for cell in pair
    }
    return frozenset(of_claims.union(*(decision.cells for decision in decisions_of(results))))


def length_words(cells: Sequence[CellResult]) -> str:
    """The steps of the runs of some cells if `until.steps` has made them longer. Otherwise empty."""
    factors = {cell.steps_factor for cell in cells}
    if factors <= {1}:
        return ""
    unequal = ", which are not equal multiples of the steps of the study" * (len(factors) > 1)
    return (
        f"Its nets were trained again for {_steps(run for cell in cells for run in cell.runs)} steps{unequal}"
    )


def order_sentences(results: Results) -> Iterator[str]:
    """Which runs the looks have ordered and why, and the verdicts on trainings that longer ones have replaced."""
    decisions = decisions_of(results)
    if ordered := order_words(decisions, int(results.study.get("replicates") or 1)):
        yield f"The {ordered}."
    orders = {(each.next_factor, each.cells): list[Decision]() for each in decisions if each.step == "longer"}
    for decision in decisions:
        if decision.step == "longer":
            orders[decision.next_factor, decision.cells].append(decision)
    for (factor, keys), reasons in orders.items():
        cells = [cell for cell in results.cells if cell.key in keys]
        trained = {
            each: [
                run for cell in cells for run in (*cell.replicates, *cell.others) if run.steps_factor == each
            ]
            for each in (factor // 2, factor)
        }
        answer = all(cell.steps_factor >= factor for cell in cells)
        before = f"per {_steps(trained[factor // 2])} steps"
        yield (
            f"After {reasons[0].seeds} replicates {before}, `until.steps` ordered trainings of twice the steps for "
            f"{len(cells)} cells, because {'; '.join(map(_reason, reasons))}. "
            + (
                "Only the longer trainings answer."
                if answer
                else f"They are under way; the answers are {before}."
            )
        )
        judged = {
            each.question: each
            for each in decisions
            if each.steps_factor == factor // 2 and not set(each.cells).isdisjoint(keys)
        }
        for each in judged.values():
            yield f"Verdict {before}: {each.text}: {each.verdict}."


def _reason(decision: Decision) -> str:
    if decision.verdict == "not learnt":
        return f"nets of “{decision.text}” stood on the plateau"
    return f"“{decision.text}” was open, and its errors still fell or its cells belong to such a question"


def _steps(runs: Iterable[TrialResult]) -> str:
    steps = sorted({int(run.settings["training.steps"]) for run in runs if "training.steps" in run.settings})
    return (
        "an unknown number of"
        if not steps
        else " to ".join(f"{n:,}" for n in dict.fromkeys((steps[0], steps[-1])))
    )
