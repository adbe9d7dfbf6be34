"""Graphs whose saved tensors are in a file, or have half of their digits, whatever a network does with its tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.curvature.engines import kept, saved_elsewhere
from hesscope.curvature.engines.graphs import GradientGraphs
from hesscope.curvature.engines.saved_elsewhere import CountedOperations, GraphFile


class _InPlace(nn.Module):
    """A tensor that an operation saved is changed in place behind it, and a view of another one is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 10), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        h = h * h + 0.1 * h
        h[:, ::2] *= 2.0
        return self.last(F.relu(h, inplace=True)).div_(1.5)


class _Attending(nn.Module):
    """A tied embedding, slices of one projection, a norm, and complex numbers on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.norm = nn.Embedding(7, 8), nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.fft.ifft(torch.fft.fft(x.to(torch.complex(x, x).dtype), dim=-1).conj() ** 2, dim=-1).real
        return (x @ self.embed.weight.T).transpose(1, 2)


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3).eval(), nn.SiLU(), nn.Flatten(), nn.Linear(48, 4)
    )


def _images() -> tuple[Tensor, Tensor]:
    return torch.randn(9, 2, 4, 4, dtype=torch.float64), torch.randint(0, 4, (9,))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "in place": (_InPlace, lambda: (torch.randn(9, 6, dtype=torch.float64), torch.randint(0, 4, (9,)))),
    "attention": (_Attending, lambda: (torch.randint(0, 7, (5, 6)), torch.randint(0, 7, (5, 6)))),
    "convolution": (_convolutional, _images),
}


@pytest.fixture(autouse=True)
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_OPERATIONS_OF_A_BYTE", 0)
    monkeypatch.setattr(saved_elsewhere, "_SMALL", 0)


def _problem(name: str, memory: float | str) -> hs.Problem:
    torch.manual_seed(0)
    make, data = NETWORKS[name]
    return hs.Problem.of(make().double().eval(), "cross_entropy", data(), batch_size=2, memory=memory)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("operator", [hs.Hessian, hs.GaussNewton, hs.FunctionalHessian])
def test_products_are_those_of_graphs_in_memory(name: str, operator: Callable[[hs.Problem], hs.LinearOperator]) -> None:
    there, written = operator(_problem(name, "1GB")), operator(_problem(name, 2))
    block = torch.randn(there.shape[1], 3, dtype=torch.float64)
    truth, found = there @ block, written @ block
    engine: Any = written._engine  # type: ignore[attr-defined]
    assert engine._file.size > 0
    assert engine.everything_kept
    assert engine.kept_bytes == 0
    assert torch.allclose(found, truth, rtol=1e-11, atol=1e-12 * float(truth.abs().max()))
    assert torch.equal(written @ block, found)
    with ThreadPoolExecutor(2) as threads:
        assert all(torch.equal(one, found) for one in threads.map(lambda _: written @ block, range(4)))


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_what_a_disk_does_not_take_is_built_again(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hs.Hessian(_problem("convolution", 2))
    v = torch.randn(whole.shape[1], dtype=torch.float64)
    truth = whole @ v
    monkeypatch.setattr(kept, "scratch_bytes", lambda where: int(part * whole._engine._file.size))
    some = hs.Hessian(_problem("convolution", 2))
    assert torch.allclose(some @ v, truth, rtol=1e-11, atol=1e-13)
    assert not some._engine.everything_kept
    assert (some._engine.kept_batches > 0) == (part > 0)


def test_a_full_disk_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    truth = hs.Hessian(_problem("in place", "1GB"))
    v = torch.randn(truth.shape[1], dtype=torch.float64)
    monkeypatch.setattr(os, "pwrite", full)
    found = hs.Hessian(_problem("in place", 2))
    assert torch.allclose(found @ v, truth @ v, rtol=1e-11, atol=1e-13)
    assert found._engine.kept_batches == 0


def test_without_memory_nothing_is_kept_and_cheap_graphs_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, price in ((0, 0), (2, 1e9)):
        monkeypatch.setattr(kept, "_OPERATIONS_OF_A_BYTE", price)
        H = hs.Hessian(_problem("convolution", memory))
        H @ torch.ones(H.shape[1], dtype=torch.float64)
        assert H._engine.kept_batches == 0
        assert H._engine._file is None


def test_a_tensor_that_several_operations_save_is_written_once(tmp_path: Path) -> None:
    file = GraphFile.new(tmp_path, 10**6)
    assert file is not None
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    with file.saving(set()):
        y = x.exp()
        loss = (y * y).sum() + (y[:50] * y[50:]).sum()
    assert file.size == y.nbytes
    (found,) = torch.autograd.grad(loss, x)
    e = x.detach().exp()
    assert torch.allclose(found, 2 * e**2 + e * torch.cat([e[50:], e[:50]]))


def test_what_changed_behind_torchs_back_is_written_again(tmp_path: Path) -> None:
    file = GraphFile.new(tmp_path, 10**6)
    assert file is not None
    x, y = torch.ones(100, requires_grad=True), torch.full((100,), 3.0)
    with file.saving(set()):
        first = x * y
        y.data.mul_(2)
        second = x * y
    assert file.size == 2 * y.nbytes
    assert torch.equal(torch.autograd.grad((first + 10 * second).sum(), x)[0], torch.full((100,), 63.0))


def test_operations_are_counted() -> None:
    x, w = torch.randn(5, 6, requires_grad=True), torch.randn(6, 7, requires_grad=True)
    with CountedOperations() as operations:
        (x @ w).sum().backward()
    assert operations.count == 3 * 2 * 5 * 6 * 7


def test_a_plan_says_that_graphs_go_to_a_file() -> None:
    plan = hs.plan(_problem("convolution", 2), "eigenpairs", k=1)
    assert plan.kept == 1.0
    assert "GB of them go to a file" in plan.note


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_half_of_the_digits_are_in_the_error_bars(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, data = NETWORKS[name]
    model, (x, y) = make().to(dtype).eval(), data()
    problem = hs.Problem.of(model, "cross_entropy", (x.to(dtype) if x.is_floating_point() else x, y), batch_size=3)
    exact, half = hs.Hessian(problem), hs.Hessian(problem, method="half")
    block = torch.randn(exact.shape[1], 20, dtype=dtype)
    block = block / block.norm(dim=0)
    gaps = (exact @ block - half @ block).norm(dim=0)
    digits = torch.finfo(saved_elsewhere.HALF[dtype]).eps
    assert float(gaps.max()) > 1e-3 * digits * float((exact @ block).norm(dim=0).max())  # it was rounded
    assert float(gaps.max()) <= half.product_error
    largest = hs.eigenpairs(exact, k=1, which="magnitude")
    assert half.product_error <= 10 * digits * abs(float(largest.values[0]))
    top, truth = hs.eigenpairs(half, k=1, tol=0.2), hs.eigenpairs(exact, k=1, tol=1e-4)
    assert abs(float(top.values[0] - truth.values[0])) <= float(top.residuals[0] + truth.residuals[0])
    assert float(top.residuals[0]) >= half.product_error
    assert "half of their digits" in top.check


@pytest.mark.parametrize(("share", "within", "method"), [(2.0, 0.05, False), (0.7, 0.05, True), (0.7, 1e-9, False)])
def test_check_takes_half_of_the_digits_where_that_was_asked_for_and_is_near_enough(
    share: float, within: float, method: bool
) -> None:
    make, data = NETWORKS["convolution"]
    torch.manual_seed(0)
    model, (x, y) = make().float().eval(), data()
    batches = list(zip(x.float().split(3), y.split(3), strict=True))
    all_graphs = GradientGraphs(hs.Problem.of(model, "cross_entropy", batches)).forecast([3, 3, 3]).total
    problem = hs.Problem.of(model, "cross_entropy", batches, memory=int(share * all_graphs))
    exact = hs.Hessian(hs.Problem.of(model, "cross_entropy", batches))  # another problem: memory is shared in one
    assert hs.check(problem).method != "half"  # only where it was asked for
    verdict = hs.check(problem, half_within=within)
    assert verdict.passed
    assert (verdict.method == "half") == method
    assert (hs.Hessian(problem).method == "half") == method
    found = next(m for m in verdict.methods if m.name == "half")
    block = torch.nn.functional.normalize(torch.randn(exact.shape[1], 20), dim=0)
    top = abs(float(hs.eigenpairs(exact, k=1, which="magnitude").values[0]))
    gap = float((exact @ block - hs.Hessian(problem, method="half") @ block).norm(dim=0).max())
    assert 0 < gap <= found.error * top


def test_half_of_the_digits_take_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    put = saved_elsewhere.HalfPrecision.put

    def counted(self: saved_elsewhere.HalfPrecision, *given: Any) -> Any:
        taken.append((found := put(self, *given))[0].nbytes)
        return found

    monkeypatch.setattr(saved_elsewhere.HalfPrecision, "put", counted)
    half = hs.Hessian(_problem("convolution", "1GB"), method="half", unchecked=True)
    written = hs.Hessian(_problem("convolution", 2), unchecked=True)
    v = torch.ones(half.shape[1], dtype=torch.float64)
    half @ v, written @ v
    assert 0.45 * written._engine._file.size < sum(taken) < 0.55 * written._engine._file.size


def test_a_tensor_that_was_changed_in_place_is_told() -> None:
    x = torch.ones(3, requires_grad=True)
    y = torch.ones(3)
    with saved_elsewhere.HalfPrecision().saving({y.untyped_storage().data_ptr()}):
        z = (x * y).sum()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        z.backward()
