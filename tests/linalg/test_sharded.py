"""The algorithms touch vectors only through the layout: two threads with half a vector each agree with one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hesscope.linalg import diagonal, eigenpairs, frobenius_norm, row_norms, solve, spectral_density, trace
from hesscope.operators import Layout
from linalg.cases import Rotated, network_like


class Group:
    """Two threads that add up, in a fixed order, what each of them brings."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=600)  # only a thread that died takes so long
        self.values: list[Any] = [None, None]

    def exchange(self, rank: int, value: Tensor) -> list[Tensor]:
        self.values[rank] = value
        self.barrier.wait()
        both = list(self.values)
        self.barrier.wait()
        return both


@dataclass(frozen=True)
class Halves(Layout):
    group: Group = field(default_factory=Group, compare=False)
    rank: int = 0

    @property
    def local(self) -> slice:
        middle = self.size // 2 + 7
        return slice(0, middle) if self.rank == 0 else slice(middle, self.size)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return self.sum(super().inner(a, b))

    def sum(self, x: Tensor) -> Tensor:
        first, second = self.group.exchange(self.rank, x)
        return first + second

    def gather(self, a: Tensor) -> Tensor:
        return torch.cat(self.group.exchange(self.rank, a))


class Sharded(Rotated):
    def __init__(self, values: np.ndarray, group: Group, rank: int) -> None:
        super().__init__(values)
        self.halves = Halves(len(values), group, rank)

    @property
    def layout(self) -> Layout:
        return self.halves

    def _apply(self, block: Tensor) -> Tensor:
        return super()._apply(self.halves.gather(block))[self.halves.local]


def on_two(function: Callable[[Sharded], Any], values: np.ndarray) -> list[Any]:
    group = Group()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda rank: function(Sharded(values, group, rank)), range(2)))


VALUES = network_like(500)
WHOLE = Rotated(VALUES)


def test_eigenpairs(tmp_path: Path) -> None:
    one = eigenpairs(WHOLE, 8)
    left, right = on_two(lambda op: eigenpairs(op, 8, resume=tmp_path), VALUES)
    np.testing.assert_allclose(left.values, one.values, rtol=1e-10)
    np.testing.assert_allclose(torch.cat([left.vectors, right.vectors]).abs(), one.vectors.abs(), atol=1e-6)
    assert left.products == right.products == one.products
    # A rank that was killed one step before the other goes on from the step that both have.
    newest = max(tmp_path.glob("state-*-257-500.npz"))
    newest.unlink()
    again = on_two(lambda op: eigenpairs(op, 8, resume=tmp_path), VALUES)
    np.testing.assert_array_equal(again[0].values, left.values)


def test_density_and_estimates() -> None:
    np.testing.assert_allclose(on_two(spectral_density, VALUES)[1].mean, spectral_density(WHOLE).mean, rtol=1e-8)
    for function in (trace, frobenius_norm):
        left, right = on_two(function, VALUES)
        assert left.value == right.value
        np.testing.assert_allclose(left.value, function(WHOLE).value, rtol=1e-8)
    for function in (diagonal, row_norms):
        left, right = on_two(function, np.abs(VALUES))
        whole = function(Rotated(np.abs(VALUES)))
        np.testing.assert_allclose(np.concatenate([left.value, right.value]), whole.value, atol=1e-8)
        assert left.products == whole.products


def test_solve() -> None:
    b = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = solve(WHOLE, b, method="minres", damping=1.0)
    left, right = on_two(lambda op: solve(op, b[op.layout.local], method="minres", damping=1.0), VALUES)
    np.testing.assert_allclose(torch.cat([left.x, right.x]), one.x, atol=1e-9)
