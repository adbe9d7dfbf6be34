"""Inner products of long vectors against float64, and the cases that are left to it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hesscope import Rng
from hesscope.operators import Layout
from hesscope.operators.long_sums import _PIECE, LONG, long_inner, long_squares

# What adding one by one inside of pieces may leave, four standard deviations of it: libraries differ in their order, this none
# exceeds. Adding a million entries one by one would leave a thousand times as much.
WALK = 4 * 2**-24 * _PIECE / (3 * LONG) ** 0.5


def _vectors(count: int, seed: int, length: int = LONG + 123) -> Tensor:
    """Columns that are each in one piece of memory."""
    return torch.randn(count, length, generator=Rng(seed).torch()).T


def test_sums_of_millions_are_those_of_float64() -> None:
    a, b = _vectors(3, 0), _vectors(2, 1)
    found = long_inner(a, b)
    assert found is not None
    size = a.double().norm(dim=0)[:, None] * b.double().norm(dim=0)
    assert float(((found - a.double().T @ b.double()).abs() / size).max()) < WALK
    squares = long_squares(a)
    assert squares is not None
    torch.testing.assert_close(squares, a.double().square().sum(0), rtol=WALK, atol=0)


def test_positive_sums_do_not_drift() -> None:
    """Rounding of one sign in every step would add up."""
    a = _vectors(1, 0).abs() + 1
    found = long_inner(a, a)
    assert found is not None
    torch.testing.assert_close(found, a.double().T @ a.double(), rtol=WALK, atol=0)


@pytest.mark.parametrize("scale", [1e-25, 1e25, float("nan")])
def test_what_float32_cannot_hold_is_left_to_float64(scale: float) -> None:
    a = _vectors(1, 0) * scale
    assert long_inner(a, a) is None
    assert long_squares(a) is None
    layout = Layout(len(a))
    torch.testing.assert_close(layout.inner(a, a), a.double().T @ a.double(), equal_nan=True, rtol=1e-8, atol=0)
    torch.testing.assert_close(layout.norms(a), a.double().norm(dim=0), equal_nan=True, rtol=1e-8, atol=0)


def test_short_vectors_and_other_types_are_left_to_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    assert long_inner(_vectors(1, 0, 5000), _vectors(1, 1, 5000)) is None
    assert long_inner(_vectors(1, 0).double(), _vectors(1, 1).double()) is None
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert long_inner(_vectors(1, 0), _vectors(1, 1)) is None
