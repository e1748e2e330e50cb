"""Every notebook runs from top to bottom and only calls the library."""

import ast
import os
import re
import textwrap
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WITHOUT_ANSWER = ("your_own",)
"""Notebooks that do not begin with an answer. `your_own` trains its study itself, so no answer is known before."""
LONGEST = 20
"""The most lines of a cell."""

PLOTLY, JSON = "application/vnd.plotly.v1+json", "application/json"
"""Where a cell keeps a figure: in a notebook of the repository, and in a run of this test."""

every = pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
answered = pytest.mark.parametrize(
    "file", [file for file in NOTEBOOKS if file.stem not in WITHOUT_ANSWER], ids=lambda file: file.stem
)


def code(file: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]


def missing(outputs: list[nbformat.NotebookNode]) -> list[bool]:
    """For each figure and table of a cell: whether the figure has no data, or the table no rows."""
    found = list[bool]()
    for data in (output.get("data", {}) for output in outputs):
        if figure := data.get(PLOTLY) or data.get(JSON):
            found.append(not figure["data"])
        elif "text/html" in data:
            found.append(data["text/plain"].startswith("Empty DataFrame"))
    return found


def test_the_folder_has_notebooks():
    assert "theorems" in [file.stem for file in NOTEBOOKS]


@every
def test_a_notebook_defines_nothing_and_every_cell_is_short(file: Path):
    for cell in code(file):
        defined = [
            node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        assert not defined, "definitions belong into the library"
        assert cell.count("\n") < LONGEST, cell


@answered
def test_a_notebook_begins_with_its_answer_after_its_title(file: Path):
    title, first, *_ = nbformat.read(file, 4).cells
    assert (title.cell_type, title.source.count("\n")) == ("markdown", 0)
    assert title.source.startswith("# ")
    [call] = [node for node in ast.parse(first.source).body if isinstance(node, ast.Expr)][-1:]
    assert isinstance(call.value, ast.Call)
    assert ast.unparse(call.value.func).rpartition(".")[2] == "answer"
    [shown] = first.outputs
    assert 1 <= shown.data["text/html"].count("<p>") <= 2
    assert "No trial" not in shown.data["text/plain"]


@answered
def test_no_cell_of_a_table_is_cut(file: Path):
    for cell in nbformat.read(file, 4).cells:
        tables = (output.get("data", {}).get("text/html", "") for output in cell.get("outputs", []))
        assert not [table for table in tables if "...</t" in table], cell.source


def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(FOLDER)
    for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE)
    programs = [textwrap.dedent(example) for example in examples if "import" in example]
    assert len(programs) == 2
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, "README.md", "exec"), names)
    assert len(names["answer"]("quickstart")) == 2  # pyright: ignore[reportCallIssue]: the program defines the name
    assert not names["study"].missing  # pyright: ignore[reportAttributeAccessIssue]


@every
def test_a_notebook_has_the_outputs_of_one_whole_run(file: Path):
    cells = [cell for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), (
        "`make notebooks` runs it"
    )
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"execute_result", "display_data"}, "no cell printed or failed"
    assert str(FOLDER.parent) not in file.read_text()
    assert file.stat().st_size < 3_000_000


@every
@pytest.mark.slow
def test_a_notebook_runs(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLOTLY_RENDERER", "json")  # pictures need a browser
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(file, 4)
    client = NotebookClient(book, timeout=500, resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    executed = [cell for cell in book.cells if cell.cell_type == "code"]
    committed = [cell for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]
    for before, after in zip(committed, executed, strict=True):
        assert before.source == after.source
        assert missing(after.outputs) == missing(before.outputs), after.source
        assert not [output for output in after.outputs if output.output_type in ("error", "stream")], (
            after.outputs
        )
