"""Pages of the site that the program or another file of the project writes, so that no page is written twice.

mkdocs calls `on_files` before it reads the pages.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:  # the tests read the pages without mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
FAMILIES = {
    "tasks": "A task is a distribution over prompts, and an error.",
    "models": "A model maps the tokens of a prompt to a prediction at every query.",
    "optimizers": "An optimizer changes the weights of a net at every step. Studies name one as `training.optimizer`.",
    "solvers": "A solver is a classical algorithm, batched over prompts. Studies name solvers under `baselines`.",
    "bounds": "A bound is a theorem as a number, for named settings.",
    "constructions": "A construction is an ordinary net with the weights of a proof.",
}
COPIES = {
    "reference/clusters.md": "cluster/README.md",
    "findings.md": "FINDINGS.md",
    "project/benchmarks.md": "benchmarks/README.md",
    "project/changes.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
}
"""Pages of the site, and the files of the project that they show."""
KEYS_WITH_SETTINGS = (
    "study",
    "training",
    "search",
    "scheduler",
    "evaluate",
    "laws",
    "claims",
    "until",
    "resources",
    "budget",
)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name, text in pages():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """The links of a written page, to pages of the site. On a code host the same links lead to the files."""
    source = DOCS / page.file.src_uri
    return linked(markdown, source, page.file.src_uri) if source.is_file() else markdown


def pages() -> Iterator[tuple[str, str]]:
    """The names and texts of all generated pages."""
    yield "reference/command_line.md", command_line()
    yield "reference/study_file.md", study_file()
    yield "reference/tables.md", tables()
    for family, sentence in FAMILIES.items():
        yield f"reference/{family}.md", members(family, sentence)
    for name, source in COPIES.items():
        yield name, copied(ROOT / source, name)


def command_line() -> str:
    """The help of every verb, as typer writes it for documentation."""
    import typer
    from typer.cli import get_docs_for_click

    from loopscale.cli.main import app

    os.environ.pop("COLUMNS", None)
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="loopscale")
    return _without_markup(text)


def _without_markup(text: str) -> str:
    """Typer's text without the markup of terminals."""
    return re.sub(r"\[/?(bold|dim|italic|cyan)\]", "", text)


def study_file() -> str:
    """The keys of a study's file, and the settings below them."""
    from loopscale.cli.components import components_named
    from loopscale.cli.describe import describe_component, describe_key

    parts = [
        "# The study file",
        "A study is a YAML file with these keys. `loopscale show KEY` prints the same tables.",
    ]
    for key in KEYS_WITH_SETTINGS:
        family = components_named(key)
        found = (
            describe_key(key, family)
            if isinstance(family, list)
            else [describe_component(member) for member in family.choices().values()]
        )
        parts += [f"## {key}", *(part for each in found for part in _component(each, level=3))]
    return "\n\n".join(parts) + "\n"


def members(family: str, sentence: str) -> str:
    """All members of a family with their settings."""
    from loopscale.cli.components import components_named
    from loopscale.cli.describe import describe_component

    choices = components_named(family)
    assert not isinstance(choices, list)
    parts = [f"# {family.capitalize()}", sentence]
    for member in choices.choices().values():
        parts += _component(describe_component(member), level=2)
    return "\n\n".join(parts) + "\n"


def _component(each: dict[str, Any], level: int) -> Iterator[str]:
    yield f"{'#' * level} {each['kind']}"
    yield each["about"]
    facts = {name: value for name, value in each["facts"].items() if value not in (None, False)}
    if facts:
        yield "\n".join(
            f"- {name}: {_cell('yes' if value is True else value)}" for name, value in facts.items()
        )
    if each["settings"]:
        rows = [
            f"| `{row['name']}` | {_cell(row['type'])} | {_cell(_default(row['default']))} | {_cell(row['about'])} |"
            for row in each["settings"]
        ]
        yield "\n".join(["| setting | type | default | about |", "|---|---|---|---|", *rows])


def tables() -> str:
    """Every column of the tables that `loopscale query` reads."""
    from loopscale.records.tables import SETTINGS, TABLES

    parts = [
        "# Tables",
        "`loopscale query` reads these tables. Every setting is a column of `trials`, under its path.",
    ]
    for table, (about, columns) in TABLES.items():
        named = {**columns, "the path of a setting": SETTINGS} if table == "trials" else columns
        rows = [
            f"| `{name}` | {column.kind} | {_cell(column.unit)} | {_cell(column.about)} |"
            for name, column in named.items()
        ]
        parts += [
            f"## {table}",
            about.capitalize() + ".",
            "\n".join(["| column | type | unit | content |", "|---|---|---|---|", *rows]),
        ]
    return "\n\n".join(parts) + "\n"


def _default(value: Any) -> str:
    """A default as a study's file has it."""
    if value is None or isinstance(value, str):
        return "none" if value is None else value
    return (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
        .removesuffix("...\n")
        .strip()
    )


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def copied(source: Path, page: str) -> str:
    """A file of the project as a page. A link to a file that is no page becomes its text."""
    return linked(source.read_text(encoding="utf-8"), source, page)


def linked(text: str, source: Path, page: str) -> str:
    """The text of a file with the links of a page. A link to a file outside the site becomes its text."""
    pages_of = {(ROOT / file).resolve(): name for name, file in COPIES.items()}
    pages_of |= {path.resolve(): str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found["words"], *found["target"].partition("#")[::2]
        if "://" in target or not target:
            return found[0]
        name = pages_of.get((source.parent / target).resolve())
        if name is None:
            return words if words.startswith("`") else f"`{words}`"
        return f"[{words}]({os.path.relpath(name, Path(page).parent)}{'#' + anchor if anchor else ''})"

    return re.sub(r"(?<!!)\[(?P<words>(?:[^\]\n]|\n(?!\n))+)\]\((?P<target>[^)\s]+)\)", link, text)


if __name__ == "__main__":
    for name, text in pages():
        sys.stdout.write(f"{name}: {len(text)} characters\n")
