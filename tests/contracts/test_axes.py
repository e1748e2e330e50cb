"""The contract of the axes of the package (`loopscale.contracts.axes`)."""

import re
from pathlib import Path

import pytest

import loopscale
from loopscale.contracts.axes import *  # noqa: F403
from loopscale.questions.axes.base import LawAxis


@pytest.mark.parametrize("kind", LawAxis.choices())
def test_an_axis_is_one_file_and_no_file_above_compares_its_name(kind: str):
    package = Path(loopscale.__file__).parent
    own = package / "questions" / "axes" / f"{kind}.py"
    assert f'kind="{kind}"' in own.read_text()
    compared = re.compile(rf'along (==|!=) "{kind}"|along (not )?in \([^\n]*"{kind}"|case "{kind}"')
    above = ("studies", "foresight", "runner", "analysis", "interface", "cli")
    files = [path for room in above for path in (package / room).rglob("*.py")]
    assert [path.name for path in files if compared.search(path.read_text())] == []
