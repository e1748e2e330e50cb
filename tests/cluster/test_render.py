"""Every example of a cluster is valid, says what it is for, and is rendered as its file in `golden/` has it."""

import os
from pathlib import Path

import pytest

from loopscale.cluster.base import Cluster
from loopscale.cluster.files import load_cluster
from tests.cluster.wanted import EXAMPLES, request

GOLDEN = Path(__file__).parent / "golden"
RENDERED = [path for path in EXAMPLES if load_cluster(path)[1].kind not in ("local", "ray")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_opens_with_what_it_is_for_and_is_valid(path: Path):
    assert path.read_text().startswith("# ")
    name, cluster = load_cluster(path)
    assert name == path.stem
    assert isinstance(cluster, Cluster)


def test_there_is_an_example_of_every_kind():
    assert {load_cluster(path)[1].kind for path in EXAMPLES} == set(Cluster.choices())


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_an_example_is_rendered_as_the_file_has_it(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/anna")
    name, cluster = load_cluster(path)
    text = cluster.render(name, request())
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("LOOPSCALE_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), (
        "if that is meant: LOOPSCALE_WRITE_GOLDEN=1 pytest tests/cluster/test_render.py"
    )
