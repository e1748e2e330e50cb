"""What a study's file says of a law: a measure along an axis or a curve, forms to fit, a bound, and held-out values.

`analysis.laws.law` fits the law, and judges its rate beside the rate of the bound.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from loopscale.core.config import Config
from loopscale.notation.mistakes import one_of, quoted
from loopscale.notation.settings import with_kind
from loopscale.questions.measures import RegretLevel
from loopscale.stats.forms.base import Form
from loopscale.stats.milestones import KINDS, Unit, check_regret, measure_of
from loopscale.theory.bounds.base import Bound

FORMS, BOUNDS = tuple(Form.choices()), tuple(Bound.choices())


def _theory(data: Any) -> Any:
    """Check a bound's kind and the names of its settings. Missing settings are filled from each trial later."""
    if data is None:
        return None
    settings: dict[str, Any] = dict(with_kind(Bound, data))
    fields = Bound.choices()[settings["kind"]].model_fields
    for name in settings.keys() - {"kind"}:
        if name not in fields:
            raise ValueError(f"bound {settings['kind']} has no setting {name!r}; {one_of(name, fields)}")
    return settings


def _form(kind: str) -> str:
    """Check that a form has this kind."""
    if Form.member(kind) is None:
        known = ", ".join(map(repr, Form.choices()))
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": known})
    return kind


def _forms() -> str:
    """The setting `form` in words."""
    formulas = "; ".join(f"{kind}: {form.formula}" for kind, form in Form.choices().items())
    return f"Of several forms, AICc chooses one. {formulas}."


def _hold_out(data: Any) -> Any:
    """A number of values, or a list of values."""
    if data is None or (type(data) is int and data > 0):
        return data
    values = tuple(cast(Iterable[Any], data)) if isinstance(data, list | tuple) else ()
    if values and all(type(value) in (int, float) for value in values):
        return values
    raise ValueError(f"hold_out is {quoted(data)}; write a number of values, such as 1, or a list of values")


BoundOrKind = dict[str, Any] | Literal[BOUNDS] | None  # pyright: ignore[reportInvalidTypeForm]
"""The notations of a bound. The family has its members at run time."""


class LawSpec(Config):
    """How a measure changes along an axis or a curve: the forms to fit, and a bound to compare with."""

    of: str = "error"
    """An error, the regret (the error above the floor), the step of emergence (`emerged_at`), the steps until the
    validation regret is below a level (`reached`), or another measure of the task. Only errors and regret have a curve
    along loops or points."""
    regret: RegretLevel = None
    """The level of `of: reached`."""
    basis: Unit = "steps"
    """Whether `emerged_at` and `reached` count steps, FLOPs or seconds of training."""
    along: str
    """A numeric scientific axis, or `loop`, `point`, `prompts` (seen in training: steps x batch_size) or `flops`."""
    form: Annotated[
        tuple[Annotated[str, AfterValidator(_form)], ...],
        BeforeValidator(
            lambda data: (data,) if isinstance(data, str) else data,
            json_schema_input_type=tuple[Literal[FORMS], ...] | Literal[FORMS],  # pyright: ignore[reportInvalidTypeForm]
        ),
        Field(min_length=1, description=_forms()),
    ] = ("power",)
    theory: Annotated[
        dict[str, Any] | None,
        BeforeValidator(_theory, json_schema_input_type=BoundOrKind),
    ] = None
    """A bound's kind and settings, as `loopscale show bounds` lists them. Settings left out are those of the trial."""
    hold_out: Annotated[int | tuple[int | float, ...] | None, BeforeValidator(_hold_out)] = None
    """How many of the largest values of the axis are held out, or a list of values. Their cells train last. The law is
    fitted to the other cells, and its prediction of the held-out cells is recorded before they start."""

    @model_validator(mode="after")
    def _level_and_basis(self) -> Self:
        if self.of in KINDS or self.regret is not None:
            check_regret(self.of, self.regret)
        if self.basis != "steps" and self.of not in KINDS:
            names = " and ".join(KINDS)
            raise ValueError(f"basis is the unit of {names}, and this is of {self.of}; leave out basis")
        return self

    @property
    def measure(self) -> str:
        """The name of the measure, with the level and the unit of a milestone."""
        return measure_of(self.model_dump(include={"of", "regret", "basis"}))
