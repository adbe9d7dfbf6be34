"""`--set name=value`: values are of the kind that a field is declared as, whatever it holds now."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from hesscope.cli.overrides import with_overrides
from hesscope.errors import HesscopeError
from hesscope.experiments import find, names


@dataclass(frozen=True)
class Config:
    examples: int | None = None
    epochs: int = 10
    rate: float = 0.1
    common: bool = True
    data: str = "mnist"
    folder: str | None = None
    rows: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (4, 8)
    channels: tuple[int, int] = (8, 16)
    scan: tuple[tuple[float, float], ...] = ((0.0, 1.0),)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("examples=600", 600),
        ("epochs=3", 3),
        ("rate=1", 1.0),
        ("common=False", False),
        ("data=None", "None"),  # a text that may not be None stays a text
        ("folder=None", None),
        ("folder=/data", "/data"),
        ("rows=T-600,F-200", ("T-600", "F-200")),
        ("rows=", ()),
        ("sizes=1,2,3", (1, 2, 3)),
        ("channels=4,6", (4, 6)),
        ("scan=(0.5,1),(2,3)", ((0.5, 1.0), (2.0, 3.0))),
        ("scan=(0.5,1)", ((0.5, 1.0),)),
    ],
)
def test_a_value_is_read_as_its_field_is_declared(setting: str, value: Any) -> None:
    found = getattr(with_overrides(Config(), [setting]), setting.partition("=")[0])
    assert found == value
    assert type(found) is type(value)


def test_none_is_restored_where_a_field_may_be_none() -> None:
    assert with_overrides(Config(examples=600), ["examples=None"]).examples is None


@pytest.mark.parametrize(
    "setting",
    ["examples=many", "examples=1.5", "epochs=None", "epochs=True", "sizes=1,x", "channels=1,2,3", "scan=1,2", "x=1"],
)
def test_a_value_of_another_kind_is_refused(setting: str) -> None:
    with pytest.raises(HesscopeError, match=r"must be of type|takes name=value"):
        with_overrides(Config(), [setting])


@pytest.mark.parametrize("name", names())
def test_every_setting_of_every_experiment_can_be_typed(name: str) -> None:
    """What one size holds can be set on another: as it is printed, without the outer brackets of a tuple."""
    experiment = find(name)
    for one in experiment.sizes.values():
        typed = [f"{field.name}={_typed(getattr(one, field.name))}" for field in fields(one)]
        assert with_overrides(experiment.quick, typed) == one


def _typed(value: Any) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
