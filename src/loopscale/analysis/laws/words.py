"""Laws in words: the columns of their table, their names, and one line for each."""

from collections.abc import Sequence
from dataclasses import replace

from loopscale.analysis.laws.law import NO_LAW, Law, Unfitted
from loopscale.analysis.table import Column, Interval
from loopscale.core.titles import bound_name, readable

LAW_COLUMNS: list[Column[Law]] = [
    Column(("cell",), "cell", lambda law: law.cell or "all"),
    Column.attribute("of", "measure"),
    Column(("along",), "along", lambda law: law.axis),
    Column(("verdict",), "verdict", lambda law: law.judgement.verdict if law.judgement else None),
    Column.attribute("rate"),
    Column.interval("low", "high"),
    Column.attribute("predicted"),
    Column.attribute("theory"),
    Column(("because",), "why", lambda law: law.why),
    Column(("form",), "form", lambda law: law.form.replace("_", " "), detail=True),
    Column(("from", "to"), "range", lambda law: Interval(min(law.x), max(law.x)), detail=True),
    Column(
        ("held_out_test",),
        "held-out test",
        lambda law: "; ".join(value.label for value in law.predictions) or "none",
        detail=True,
    ),
]


def split_shared_note(laws: Sequence[Law]) -> tuple[list[Law], str]:
    """The laws without the note that all of them have, and this note; empty if their notes differ."""
    notes = {law.note for law in laws}
    if len(laws) < 2 or len(notes) > 1:
        return list(laws), ""
    return [replace(law, note="") for law in laws], notes.pop()


def measure_name(of: str) -> str:
    """The name of a measure for readers. `excess` is an adjective without its noun."""
    return "excess error" if of == "excess" else of


def law_name(law: Law | Unfitted, axis: str = "") -> str:
    """The measure, the axis (by default `along`) and the cell of a law."""
    return f"{measure_name(law.of)} along {axis or law.along}" + (
        f" ({readable(law.cell)})" if law.cell else ""
    )


def law_line(law: Law) -> str:
    """A law in one line with its verdict, and in indented lines below the reason, the note and the held-out test."""
    name, span = law_name(law, law.axis), f"for {law.along} {law.x[0]:g} .. {law.x[-1]:g}"
    if law.judgement and law.judgement.verdict == NO_LAW:
        text = f"law: {name} follows no law of its forms, {span}"
    else:
        interval = Interval.of(law.low, law.high)
        rate = f"rate {law.rate:.3g}" + (f" ({interval})" if interval else " (no interval)")
        text = f"law: {name} is {law.form.replace('_', ' ')}, {rate}, {span}"
        if law.theory and law.predicted is not None:
            text += f"; {bound_name(law.theory)} predicts {law.predicted:.3g}"
        text += f": {law.judgement.verdict}" if law.judgement else ""
    because = law.judgement.because if law.judgement else ""
    return "\n  ".join(filter(None, (text, because, law.note, law.test_words)))
