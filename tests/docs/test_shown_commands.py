"""Every command in the README and in the tutorials runs, and prints the shown output."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.shown_commands import (
    ShownCommand,
    ShownFile,
    dependent_lines,
    equal_output,
    shown_parts,
    write_file,
)
from tests.terminal import lines_at_end, run_in_terminal

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
WITH_COMMANDS = [page for page in PAGES if "```console" in page.read_text(encoding="utf-8")]
LINKED = ("notebooks", "cluster", "docs", "examples")
"""Folders of a checkout that shown commands only read."""
WIDTH = 100
"""Columns of the terminal of a reader."""


def run_page(page: Path, folder: Path) -> None:
    """Run every command of a page in a folder that looks like a checkout."""
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "studies", folder / "studies")
    named = ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI", "LOOPSCALE_CLUSTER")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for part in shown_parts(page.read_text(encoding="utf-8")):
        if isinstance(part, ShownFile):
            write_file(folder, part)
            continue
        code, lines = run_in_terminal(["bash", "-c", part.command], WIDTH, folder, environment)
        printed = "\n".join(lines)
        assert code == 0, f"$ {part.command}\n{printed}"
        if part.compared:
            assert equal_output(part.output, printed.rstrip().split("\n")), f"$ {part.command}\n{printed}"


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a page trains 16 nets, on a machine with other work
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_shown_command_prints_the_shown_output(page: Path, tmp_path: Path):
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_shown_output_depends_on_the_processor_or_the_load(page: Path):
    assert dependent_lines(shown_parts(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("output", "dependent"),
    [
        ("…\n 4 loops are better than 2   …\ntrials: 8 finished\n…", ""),
        ("…\n 4 loops are better than 2   not learnt …\n…", " 4 loops are better than 2   not learnt …"),
        ("…\n loops=2      0.0029 …\n…", " loops=2      0.0029 …"),
        ("…\nused 1 h …\n…", "used 1 h …"),
        ("Do more loops help?\n…", "Do more loops help?"),
        ("…\nbaselines: 2 finished", "baselines: 2 finished"),
    ],
)
def test_a_trained_number_a_verdict_and_the_ends_of_a_run_are_no_shown_output(output: str, dependent: str):
    trained = ShownCommand("loopscale run mine", tuple(output.split("\n")))
    later = ShownCommand("loopscale best mine", ("…", *trained.output, "…"))
    read = ShownCommand("loopscale best quickstart", trained.output)
    assert dependent_lines([trained]) == ([f"$ loopscale run mine: {dependent}"] if dependent else [])
    inner = dependent if "…" in dependent else ""
    assert dependent_lines([ShownCommand("loopscale run mine", ()), later]) == (
        [f"$ loopscale best mine: {inner}"] if inner else []
    )
    assert dependent_lines([read]) == []


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        ("a\r\nb\r\n", ["a", "b"]),
        ("\x1b[1mbold\x1b[0m end", ["bold end"]),
        ("waits, 1 s\r\x1b[2Kquestion\r\n", ["question"]),
        ("one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2Kquestion\r\nbar\r\nend", ["question", "bar", "end"]),
        ("12\b3", ["13"]),
        ("abc\r\x1b[1Cx", ["axc"]),
        ("\x1b]0;title\x07text\x1b[?25l", ["text"]),
    ],
)
def test_a_terminal_shows_the_last_line_of_a_progress(printed: str, lines: list[str]):
    assert lines_at_end(printed) == lines


def test_the_readme_and_two_tutorials_show_commands():
    names = {page.name for page in WITH_COMMANDS}
    assert {"README.md", "first_study.md", "reading_a_verdict.md"} <= names


@pytest.mark.parametrize(
    ("shown", "real", "equal"),
    [
        (["a 1 s"], ["a 1 s"], True),
        (["a … s"], ["a 12 s  "], True),
        (["…", "end"], ["x", "y", "end"], True),
        (["…", "end"], ["end", "more"], False),
        (["a"], ["a", "b"], False),
        (["a", "…"], ["a"], True),
    ],
)
def test_a_shown_output_differs_from_another_output(shown: list[str], real: list[str], equal: bool):
    assert equal_output(tuple(shown), real) is equal


def test_a_page_is_read_in_order():
    page = '<!-- before: one -->\n```yaml title="a.yaml"\nx: 1\n```\n```console\n$ two\nout\n$ three\n```\n'
    first, file, second, third = shown_parts(page)
    assert first == ShownCommand("one", (), compared=False)
    assert file == ShownFile("a.yaml", "x: 1\n")
    assert (second, third) == (ShownCommand("two", ("out",)), ShownCommand("three", ()))
