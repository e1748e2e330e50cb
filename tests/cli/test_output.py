"""Tables in a terminal are readable at every width."""

import json
import math
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from loopscale.cli.output import format_duration
from tests.terminal import run_in_terminal

PROGRAM = """
from loopscale.cli.output import show_table
show_table(["cell", "error", "95 % interval", "learnt", "trial"], [
    ["algoformer", 0.2591, "0.2058 .. 0.3339", "3 of 3, still falling", "a6c7964610ddc35b"],
    ["looped", 0.4636, "0.335 .. 0.636", "3 of 3", "a6e9da08adc976eb"],
])
"""


def in_terminal(program: str, width: int) -> list[str]:
    """The lines that a Python program prints in a terminal of this width."""
    code, lines = run_in_terminal([sys.executable, "-c", program], width)
    assert code == 0
    return lines


def test_a_table_wider_than_the_terminal_is_printed_in_parts_and_nothing_is_cut():
    wide, narrow = in_terminal(PROGRAM, 120), in_terminal(PROGRAM, 60)
    assert sum(line.startswith(" cell") for line in wide) == 1
    assert sum(line.startswith(" cell") for line in narrow) == 2
    assert max(map(len, narrow)) <= 60
    for value in ("algoformer", "0.2591", "0.2058 .. 0.3339", "3 of 3, still falling", "a6c7964610ddc35b"):
        assert any(value in line for line in narrow), value


LEAVING = """
import sys
from loopscale.analysis.table import Column
from loopscale.cli.output import show_answers
columns = [
    Column(("cell",), "cell", lambda row: row[0]),
    Column(("lr",), "training.lr", lambda row: 0.0044, leaves=True),
    Column(("error",), "error", lambda row: row[1]),
    Column(("low", "high"), "95 % interval", lambda row: "0.2058 .. 0.3339"),
    Column(("ratio",), "ratio", lambda row: 1.512, leaves=True),
    Column(("from", "to"), "95 % interval", lambda row: "1.134 .. 1.977", leaves=True),
    Column(("verdict",), "verdict", lambda row: "undecided"),
    Column(("trial",), "trial", lambda row: "a6c7964610ddc35b", leaves=True),
]
rows = [("algoformer with a long name that can be folded", 0.2591), ("looped", 0.4636)]
show_answers(columns, rows, wide="--wide" in sys.argv)
"""


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("width", "left"),
    [
        (150, ""),
        (110, "trial"),
        (90, "ratio, trial"),
        (80, "ratio, trial"),
        (70, "training.lr, ratio, trial"),
    ],
)
def test_columns_leave_a_narrow_terminal_from_the_right_and_a_line_names_them(width: int, left: str):
    lines = in_terminal(LEAVING, width)
    shown = " ".join(lines)
    assert max(map(len, lines)) <= width
    assert f"left out at {width} columns: {left}; --wide prints them" in shown or not left
    assert ("left out" in shown) == bool(left)
    for value in ("0.2591", "0.4636", "0.2058 .. 0.3339", "undecided"):
        assert value in shown
    assert sum("verdict" in line for line in lines) == 1


def test_wide_prints_every_column_in_parts():
    code, lines = run_in_terminal([sys.executable, "-c", LEAVING, "--wide"], 70)
    shown = " ".join(lines)
    assert code == 0
    assert max(map(len, lines)) <= 70
    assert "left out" not in shown
    for value in ("0.0044", "1.134 .. 1.977", "a6c7964610ddc35b", "undecided"):
        assert value in shown


SENTENCES = """
from loopscale.cli.output import say_folded, show_table
show_table(["setting", "type", "default", "about"], [
    ["width"],
    ["mlp_width", "whole number >= 0 or none", None, "Hidden units of the MLP; none for four times the width."],
], sentences=True)
code = "    code: never folded, also in a narrow terminal"
say_folded("one two three four five six seven eight nine ten eleven\\n\\n" + code)
"""


def test_a_table_of_sentences_becomes_paragraphs_in_a_narrow_terminal():
    narrow, wide = in_terminal(SENTENCES, 40), in_terminal(SENTENCES, 100)
    assert "  type: whole number >= 0 or none" in narrow
    assert "  Hidden units of the MLP; none for four" in narrow
    assert not any("type:" in line for line in wide)
    assert any("whole number >= 0 or none" in line and "Hidden units" in line for line in wide)


def test_paragraphs_end_lines_between_words_and_code_is_not_folded():
    narrow = in_terminal(SENTENCES, 40)
    assert "one two three four five six seven eight" in narrow
    assert "nine ten eleven" in narrow
    assert "    code: never folded, also in a narrow terminal" in "".join(narrow[-2:])


def test_json_keeps_every_letter_where_the_output_is_not_utf_8():
    program = "from loopscale.cli.output import show_json; show_json({'question': 'Größe λ?', 'error': float('nan')})"
    environment = os.environ | {"PYTHONIOENCODING": "ascii:replace"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    assert json.loads(done.stdout) == {"question": "Größe λ?", "error": None}


@pytest.mark.parametrize("verb", ["plan", "stop", "ui"])
def test_a_paragraph_of_a_verbs_help_breaks_at_the_terminals_width_alone(verb: str):
    program = f"from loopscale.cli.main import main; main(['{verb}', '--help'])"
    code, lines = run_in_terminal([sys.executable, "-c", program], 80)
    assert code == 0
    text = [line.strip() for line in lines[: next(n for n, line in enumerate(lines) if "Arguments" in line)]]
    for line, next_line in pairwise(text):
        if line and next_line:
            assert len(line) + 1 + len(next_line.split()[0]) > 76, line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.51, "12.5 s"),
        (400.0, "7 min"),
        (12_000.0, "3 h 20 min"),
        (216_000.0, "2.5 days"),
        (math.inf, "inf s"),
        (math.nan, "nan s"),
        (86_400e9, "1e+09 days"),
    ],
)
def test_any_number_of_seconds_has_a_text(seconds: float, text: str):
    assert format_duration(seconds) == text
