"""Fitted laws, each in one line."""

from typing import TYPE_CHECKING

from loopscale.cli.output import format_interval

if TYPE_CHECKING:
    from loopscale.analysis.laws.law import Law


def line(law: "Law") -> str:
    """What falls along what, in which form, how fast, over which range, and what theory makes of it."""
    where = f" ({law.cell})" if law.cell else ""
    spread = format_interval(law.low, law.high)
    text = f"law: {law.of} along {law.axis}{where} is {law.form.replace('_', ' ')}, rate {law.rate:.3g}"
    text += f" ({spread})" if spread else " (no interval)"
    text += f", for {law.along} {law.x[0]:g} .. {law.x[-1]:g}"
    if law.theory and law.predicted is not None:
        text += f"; {law.theory} predicts {law.predicted:.3g}"
    if law.verdict:
        text += f": {law.verdict.word}, {law.verdict.because}"
    return f"{text}; {law.note}" if law.note else text
