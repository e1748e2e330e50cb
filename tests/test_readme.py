"""The README and CONTRIBUTING.md name files, verbs and settings that exist.

`tests/docs` runs the commands of the README.
"""

import re
from pathlib import Path

from loopscale.studies.spec import Study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_study_of_the_readme_loads_with_two_cells(tmp_path: Path):
    [text] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (file := tmp_path / "shown.yaml").write_text(text, encoding="utf-8")
    study = Study.load(file)
    assert len(study.cells()) == 2
    assert study.planned == 2 * (2 + 4)


def test_the_readme_is_read_in_a_minute():
    assert len(README.splitlines()) < 150


def test_every_path_of_the_tree_exists():
    tree = CONTRIBUTING[
        CONTRIBUTING.index("    studies/       one") : CONTRIBUTING.index("## Rules of the code")
    ]
    found, above = [], ROOT
    for line in filter(str.strip, tree.splitlines()):
        indent, path = len(line) - len(line.lstrip()), line.split()[0]
        parent = ROOT if indent == 4 else above
        above = ROOT / path if indent == 4 else above
        found.append(parent / path)
    assert len(found) > 15
    assert [path for path in found if not path.exists()] == []


def test_every_link_within_the_project_leads_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_the_readme_and_the_tutorials_name_only_verbs_of_the_program():
    from loopscale.cli.main import app

    pages = [README, *(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))]
    named = {
        verb
        for page in pages
        for verb in re.findall(r"(?:^    |`|\$ )loopscale ([a-z]+)", page, re.MULTILINE)
    }
    assert len(named) > 10
    assert named <= {command.name for command in app.registered_commands}
