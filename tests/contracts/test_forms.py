"""The contract of the forms of the package (`loopscale.contracts.forms`)."""

import math
import re
from pathlib import Path

import pytest

import loopscale
from loopscale.contracts.forms import *  # noqa: F403
from loopscale.questions.law import LawSpec
from loopscale.stats.forms.base import Form, variants


@pytest.mark.parametrize("kind", Form.choices())
def test_a_form_is_one_file_and_no_other_file_compares_its_name(kind: str):
    package = Path(loopscale.__file__).parent
    own = package / "stats" / "forms" / f"{kind}.py"
    assert f'kind="{kind}"' in own.read_text()
    compared = re.compile(rf'(==|!=|\bin) \(?[^\n]*"{kind}"|case "{kind}"')
    others = [
        path for path in package.rglob("*.py") if path.parent.name != "papers"
    ]  # they have trends of their own
    assert [path.name for path in others if path != own and compared.search(path.read_text())] == []


@pytest.mark.parametrize("kind", Form.choices())
def test_a_study_can_ask_for_the_form_by_its_kind(kind: str):
    assert LawSpec.model_validate({"along": "loop", "form": kind}).form == (kind,)
    description = LawSpec.model_fields["form"].description
    assert description
    assert f"{kind}: {Form.choices()[kind].formula}" in description


def test_an_unknown_form_is_refused_with_the_known_forms():
    with pytest.raises(ValueError, match=r"no form 'cubic'; there is .*power"):
        variants("cubic")


@pytest.mark.parametrize(
    ("kind", "rate", "text"),
    [
        ("exponential", math.log(2), "falls by a factor of 2 per loop"),
        ("exponential", -math.log(2), "grows by a factor of 2 per loop"),
        ("power", 0.5, "falls as loops^-0.5"),
        ("power", -0.5, "grows as loops^0.5"),
        ("power_floor", 0.5, "falls as loops^-0.5 to a floor"),
        ("log_power", 1.3, "falls as (ln(1 + loops))^-1.3"),
        (
            "double_exponential",
            math.log(2),
            "falls doubly exponentially, its logarithm by a factor of 2 per loop",
        ),
    ],
)
def test_a_form_words_its_rate(kind: str, rate: float, text: str):
    assert Form.choices()[kind].worded("loops", "loop", rate) == text


def test_the_words_of_an_interval_have_the_sign_and_the_unit_of_the_rate():
    power, exponential = Form.choices()["power"], Form.choices()["exponential"]
    assert power.worded("d", "unit", 0.5, 0.4, 0.7).endswith(
        "d^-0.5 (95 % interval of the exponent -0.7 to -0.4)"
    )
    assert power.worded("d", "unit", -0.5, -0.7, -0.4).endswith(
        "d^0.5 (95 % interval of the exponent 0.4 to 0.7)"
    )
    ends = math.log(1.5), math.log(4)
    assert exponential.worded("T", "loop", math.log(2), *ends).endswith("(95 % interval 1.5 to 4)")
    assert exponential.worded("T", "loop", -math.log(2), -ends[1], -ends[0]).endswith(
        "(95 % interval 1.5 to 4)"
    )
    assert exponential.worded("T", "loop", 1.0, 0.5, math.inf).endswith("to unbounded)")
