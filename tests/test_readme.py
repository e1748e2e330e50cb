"""What README.md shows works, and what it names is there."""

import re
from pathlib import Path

import yaml

from loopscale.studies.spec import Study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_study_is_one(tmp_path: Path):
    [text] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (file := tmp_path / "shown.yaml").write_text(text, encoding="utf-8")
    study = Study.load(file)
    assert len(study.cells()) == 4
    assert study.planned == 4 * (8 + 3)


def test_every_path_of_its_tree_is_there():
    tree = README[README.index("    studies/       one") : README.index("To add a task")]
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


def test_its_verbs_are_those_of_the_program():
    from loopscale.cli.main import app

    shown = set(re.findall(r"`loopscale ([a-z]+)", README[README.index("## The command line") :]))
    assert shown == {command.name for command in app.registered_commands}


def test_its_settings_are_yaml_as_the_program_reads_it():
    assert yaml.safe_load(re.findall(r"`(resources: \{.*?\})`", README)[0]) == {"resources": {"gpu": 0.25}}
