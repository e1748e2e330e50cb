"""The answer of a study in at most four sentences for people. Names of theorems and trials stay in the tables."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from loopscale.analysis.answers.claims import JudgedClaim
from loopscale.analysis.answers.comparisons import Comparison, lowest_first
from loopscale.analysis.answers.findings import Findings
from loopscale.analysis.answers.standings import Standing
from loopscale.analysis.laws.law import NO_LAW, Law
from loopscale.analysis.recorded.learning import NOT_LEARNT
from loopscale.analysis.recorded.results import CellResult, mean
from loopscale.analysis.table import number
from loopscale.core.titles import readable
from loopscale.stats.learning import MeanFloor
from loopscale.studies.axes import labels_without

QUOTED = ("holds", "does not hold")
"""Verdicts whose first claim a short answer quotes."""
MOST_ALGORITHMS = 3
"""The largest number of algorithms that the summary names for one verdict."""
AGAINST = {
    "less": "better than",
    "more": "worse than",
    "level": "level with",
    "undecided": "not told apart from",
}
"""The place of a net beside an algorithm, by the verdict on the ratio of their errors."""
PLATEAU = ("has no verdict (nets on the plateau)", "have no verdict (nets on the plateau)")
UNDECIDED = ("is undecided", "are undecided")
OF_CELLS = {
    "less": ("is better", "are better"),
    "more": ("is worse", "are worse"),
    "level": ("is level", "are level"),
    "undecided": UNDECIDED,
    NOT_LEARNT: PLATEAU,
}
"""Verdicts on the best cells beside algorithms, with the verb for one and for several."""
OF_LAWS = {
    "agrees": ("agrees", "agree"),
    "slower": ("falls more slowly than predicted", "fall more slowly than predicted"),
    "faster": ("falls faster than predicted", "fall faster than predicted"),
    "undecided": UNDECIDED,
    NO_LAW: ("follows no law of its forms", "follow no law of their forms"),
    NOT_LEARNT: PLATEAU,
}
OF_CLAIMS = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "level": ("is level", "are level"),
    "learns more often": ("learns more often", "learn more often"),
    "learns less often": ("learns less often", "learn less often"),
    "undecided": UNDECIDED,
    NOT_LEARNT: PLATEAU,
}


def summary(findings: Findings) -> list[str]:
    """Which cell is best and by how much, its place beside floor and algorithms, theory, and the open questions."""
    if not findings.results.tasks:
        return ["No trial has finished yet, so there is no answer yet."]
    return [*answer_sentences(findings), _open(findings)]


def answer_sentences(findings: Findings) -> list[str]:
    """The best cell and its lead, its place beside floor and algorithms, and theory: at most three sentences."""
    if not findings.results.tasks:
        return ["No trial has finished yet, so there is no answer yet."]
    several = len(findings.results.tasks) > 1
    sentences = (
        _best_of_tasks(findings) if several else _best(findings),
        _beside_algorithms(findings),
        _beside_theory(findings),
    )
    return [sentence for sentence in sentences if sentence]


def verdict_sentences(claims: Sequence[JudgedClaim], laws: Iterable[Law]) -> list[str]:
    """The verdicts of claims and of laws in at most two sentences, with the first claim of each clear verdict."""
    words = [law.judgement.verdict for law in laws if law.judgement]
    counts = Counter(claim.verdict for claim in claims).most_common()
    judged = [f"{_counted([word] * count, OF_CLAIMS)}{_quoted(word, claims)}" for word, count in counts]
    of_claims = f"Of {_many(len(claims), 'claim')}, {'; '.join(judged)}." if claims else ""
    of_laws = f"Of {_many(len(words), 'law')} beside theory, {_counted(words, OF_LAWS)}." if words else ""
    return [sentence for sentence in (of_claims, of_laws) if sentence]


def _quoted(word: str, claims: Iterable[JudgedClaim]) -> str:
    """The first claim with this verdict, if the verdict is clear."""
    first = next((claim.text for claim in claims if claim.verdict == word), "")
    return f" (first: “{first}”)" if first and word in QUOTED else ""


def first_open(findings: Findings) -> str:
    """The first open question with its reason, and the number of the others. Raises IndexError without any."""
    question, others = findings.open[0], len(findings.open) - 1
    more = f"; the report lists {_many(others, 'more open question')}" if others else ""
    return f"open: {question.what}: {question.because}{more}"


def _best(findings: Findings) -> str:
    """The lowest error, and the next cell with the verdict between both."""
    [cells] = findings.results.tasks.values()
    answers = {answer.cell: answer for answer in findings.answers}
    first, *others = lowest_first(cells)[:2]
    label = first.name or "the only cell"
    answer = answers[first.key]
    words = answer.words if answer.error_low is not None or not others else number(answer.error)
    text = f"Best is {label} with an error of {words}, where 1 is predicting nothing"
    if answer.error is not None and answer.error >= 1:
        text = (
            f"No net is better than predicting nothing, which costs 1: {label} has the least error, {words}"
        )
    for other in others:
        compared = answers[other.key].against_best
        assert compared
        text += f"; {beside_best(other.name, compared)}, {_lead(compared)}"
    return f"{text}."


def beside_best(name: str, compared: Comparison) -> str:
    """The error of the next cell beside the best error. A ratio of 1 in two digits is the same error."""
    ratio, low, high = compared.ratio, compared.low, compared.high
    if ratio is not None and low is not None and high is not None and round(ratio, 2) == 1:
        within = 100 * max(high - 1, 1 - low)
        return f"{name} has the same error within {max(within, 0.1):.2g} %"
    return f"{name} has {compared.span}" + " times this error" * (compared.ratio is not None)


def _lead(compared: Comparison) -> str:
    """The verdict on the lead of the best cell over the next."""
    return {
        "more": "so the lead is certain",
        "level": "so both are level",
        NOT_LEARNT: f"but {compared.plateau}",
        "no interval": "but there are too few runs for a verdict",
        "learns more often": "and learns more often",
        "learns less often": "and learns less often",
    }.get(compared.verdict, "so the order of both is undecided")


def _best_of_tasks(findings: Findings) -> str:
    """Which setting is best on how many tasks, the range of the lowest errors, and how many leads are certain."""
    tasks = findings.results.tasks
    answers = {answer.cell: answer for answer in findings.answers}
    ranked = {task: lowest_first(cells) for task, cells in tasks.items()}
    lowest = {task: mean(cells[0].values_of("error")) for task, cells in ranked.items()}
    easy, hard = min(lowest, key=lowest.__getitem__), max(lowest, key=lowest.__getitem__)
    span = (
        f"the lowest error runs from {number(lowest[easy])} ({_short(easy)}) to {number(lowest[hard])}"
        f" ({_short(hard)}), where 1 is predicting nothing"
    )
    rivals = {task: cells for task, cells in ranked.items() if len(cells) > 1}
    if not rivals:
        return _sentence([span])
    name, count = Counter(_names(findings, [cells[0] for cells in rivals.values()])).most_common(1)[0]
    leads = [compared for cells in rivals.values() if (compared := answers[cells[1].key].against_best)]
    ratios = [lead.ratio for lead in leads if lead.ratio is not None]
    ends = [number(end) for end in dict.fromkeys((min(ratios), max(ratios)))] if ratios else []
    certain = sum(lead.verdict == "more" for lead in leads)
    next_cell = (
        f"the next cell of a task has {' to '.join(ends)} times the lowest error, which is certain on"
        f" {certain or 'no'} {'task' if certain < 2 else 'tasks'}"
    )
    best_cell = f"best on {count} of {_many(len(rivals), 'task')} is {name or 'the only cell'}"
    return _sentence([best_cell, *([next_cell] if ends else []), span])


def _names(findings: Findings, cells: Sequence[CellResult]) -> list[str]:
    """The labels of the cells without the settings of their tasks."""
    everything = findings.results.cells
    of_task = {path for cell in everything for path in cell.values if path.startswith("task.")}
    names = dict(zip((cell.key for cell in everything), labels_without(everything, of_task), strict=True))
    return [readable(names[cell.key]) for cell in cells]


def _short(task: str) -> str:
    return task.replace("task.", "")


def _beside_algorithms(findings: Findings) -> str:
    """The regret of the best cells, and their verdicts against the algorithms after as many steps."""
    tasks = findings.results.tasks
    keys = {lowest_first(cells)[0].key for cells in tasks.values()}
    rows = [standing for standing in findings.standings if standing.cell in keys]
    regrets = [
        answer.regret for answer in findings.answers if answer.cell in keys and answer.regret is not None
    ]
    floors = [findings.results.floor(cell) for cell in findings.results.cells if cell.key in keys]
    left = _above_the_floors(regrets, [floor for floor in floors if floor], len(tasks))
    if len(tasks) > 1:
        words = _counted((standing.verdict for standing in rows), OF_CELLS)
        beside = (
            [f"of {_many(len(rows), 'comparison')} with algorithms after as many steps, {words}"]
            if rows
            else []
        )
        return _sentence([*left, *beside])
    beside = [f"after as many steps, the net is {_against(rows)}"] if rows else []
    return _sentence([*left, *beside])


def _above_the_floors(regrets: Sequence[float], floors: Sequence[MeanFloor], tasks: int) -> list[str]:
    """How far the best cells are above their floors; empty if no floor is known."""
    if not regrets:
        return []
    lowest, highest = min(regrets), max(regrets)
    ends = " to ".join(dict.fromkeys((number(lowest), number(highest))))
    references = {floor.name.replace("_", " ") for floor in floors if floor.how == "reference"}
    if not references:
        if tasks > 1:
            return [f"the best cells have a regret of {ends}, which a perfect predictor avoids"]
        return [f"{ends} of this error is regret, which a perfect predictor avoids"]
    # A reference is no floor, so a net may be better.
    known = (
        f"{_few(sorted(references))}, the best known {'algorithm' if len(references) == 1 else 'algorithms'}"
    )
    if tasks > 1:
        return [f"the errors of the best cells less those of {known}, are {ends}"]
    if highest < 0:
        return [f"this error is {number(-highest)} below that of {known}"]
    return [f"this error is {ends} above that of {known}"]


def _against(rows: Iterable[Standing]) -> str:
    """`better than averaging, not told apart from newton`."""
    names: dict[str, list[str]] = {}
    for standing in rows:
        words = AGAINST.get(standing.verdict, "without a verdict against")
        names.setdefault(words, []).append(standing.algorithm)
    order = [*AGAINST.values(), *names]
    return ", ".join(f"{words} {_few(names[words])}" for words in dict.fromkeys(order) if words in names)


def _few(names: list[str]) -> str:
    shown = names[:MOST_ALGORITHMS]
    if more := len(names) - len(shown):
        shown.append(f"{more} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _beside_theory(findings: Findings) -> str:
    """The verdicts of the laws, and the scores of predictions."""
    words = [law.judgement.verdict for law in findings.laws if law.judgement]
    scores = Counter(value.verdict for law in findings.laws for value in law.predictions if value.score)
    judged = scores["hit"] + scores["miss"]
    laws = [f"of {_many(len(words), 'law')} beside theory, {_counted(words, OF_LAWS)}"] if words else []
    foretold = [f"{scores['hit']} of {_many(judged, 'prediction')} were hits"] if judged else []
    return _sentence([*laws, *foretold])


def _open(findings: Findings) -> str:
    """The verdicts of the claims, the runs on the plateau, and the number of open questions."""
    learnt, questions = findings.results.learnt, len(findings.open)
    words = _counted((claim.verdict for claim in findings.claims), OF_CLAIMS)
    claims = [f"of {_many(len(findings.claims), 'claim')}, {words}"] if findings.claims else []
    falling = f", and {learnt.falling} still improve" if learnt.falling else ""
    nets = [f"{learnt.emerged} of {_many(learnt.of, 'net')} have learnt{falling}"] if learnt.of else []
    still_open = "1 question is open" if questions == 1 else f"{questions or 'no'} questions are open"
    return _sentence([*claims, *nets, still_open])


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _counted(words: Iterable[str], verbs: Mapping[str, tuple[str, str]]) -> str:
    """`2 are better, 1 is undecided`, the most frequent first."""
    counts = Counter(words).most_common()
    return ", ".join(
        f"{count} {verbs.get(word, (f'has {word}', f'have {word}'))[count > 1]}" for word, count in counts
    )


def _sentence(parts: Sequence[str]) -> str:
    """The parts as one sentence; empty without parts."""
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
