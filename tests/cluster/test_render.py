"""Every example of a cluster is valid, has a comment on its use, and renders as its file in `golden/`."""

import os
from pathlib import Path

import pytest

from loopscale.cluster.base import Cluster
from loopscale.cluster.files import load_cluster
from tests.cluster.wanted import EXAMPLES, request

GOLDEN = Path(__file__).parent / "golden"
RENDERED = [path for path in EXAMPLES if load_cluster(path)[1].kind not in ("local", "ray")]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_opens_with_a_comment(path: Path):
    assert path.read_text().startswith("# ")
    name, cluster = load_cluster(path)
    assert name == path.stem
    assert isinstance(cluster, Cluster)


def test_there_is_an_example_of_every_kind():
    assert {load_cluster(path)[1].kind for path in EXAMPLES} == set(Cluster.choices())


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_an_example_renders_as_its_golden_file(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/anna")
    name, cluster = load_cluster(path)
    text = cluster.render(name, request())
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("LOOPSCALE_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), (
        "if this is intended: LOOPSCALE_WRITE_GOLDEN=1 pytest tests/cluster/test_render.py"
    )
