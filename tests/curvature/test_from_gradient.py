"""Hessians from a gradient function alone: the estimated error covers the real one, and every result carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import hesscope as hs
from hesscope.errors import InputError

TYPES = [torch.float64, torch.float32]


def network(kind: type[nn.Module] = nn.Tanh, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 5), kind(), nn.Linear(5, 3))


def data(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(20, 4, generator=generator).to(dtype), torch.randint(0, 3, (20,), generator=generator)


def gradient_of(model: nn.Module, noise: float = 0.0) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A flat gradient function of the mean cross-entropy, and the parameters."""
    named = dict(model.named_parameters())
    x, y = data(next(iter(named.values())).dtype)
    draws = torch.Generator().manual_seed(2)

    def gradient(theta: Tensor) -> Tensor:
        pieces = torch.split(theta, [p.numel() for p in named.values()])
        at = {n: t.reshape(p.shape).requires_grad_() for t, (n, p) in zip(pieces, named.items(), strict=True)}
        found = torch.autograd.grad(F.cross_entropy(functional_call(model, at, (x,)), y), list(at.values()))
        flat = torch.cat([g.reshape(-1) for g in found])
        return flat + noise * torch.randn(flat.shape, generator=draws).to(flat) if noise else flat

    return gradient, torch.cat([p.detach().reshape(-1) for p in named.values()])


def exact(model: nn.Module) -> Tensor:
    """By double backward in float64, of the very parameters."""
    wide = nn.Sequential(*model.children()).double() if isinstance(model, nn.Sequential) else model.double()
    x, y = data(torch.float64)
    wrt = list(wide.parameters())
    first = torch.autograd.grad(F.cross_entropy(wide(x), y), wrt, create_graph=True)
    rows = [torch.autograd.grad(e, wrt, retain_graph=True) for e in torch.cat([g.reshape(-1) for g in first])]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows]).detach()


@pytest.mark.parametrize("noise", [0.0, 1e-7, 1e-4, 1e-2])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_estimated_error_of_every_product_covers_the_real_one(dtype: torch.dtype, noise: float) -> None:
    model = network().to(dtype)
    gradient, theta = gradient_of(model, noise)
    H, vectors = hs.Hessian.from_gradient(gradient, theta), torch.eye(len(theta), dtype=torch.float64)
    drawn = torch.randn(len(theta), 30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    products = [(v, H._balanced(v)) for v in (*vectors, *(drawn / drawn.norm(dim=0)).T)]
    truth = exact(model)
    real = np.array([float((found.value - truth @ v).norm()) for v, found in products])
    claimed = np.array([found.error for _, found in products])
    assert (real <= claimed).all()
    assert np.median(claimed / real) < 40  # a bar of this length still says something
    assert H.product_error >= claimed.max()
    if not noise:
        assert real.max() < (1e-9 if dtype == torch.float64 else 1e-4)
    else:
        assert H.noise == pytest.approx(noise * len(theta) ** 0.5, rel=0.5)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_kinks_are_in_the_error(dtype: torch.dtype) -> None:
    """Steps that rounding asks for in float32 cross many of them: differences at two steps may then be alike, and wrong."""
    for seed in range(4):
        model = network(nn.ReLU, seed).to(dtype)
        gradient, theta = gradient_of(model)
        H, truth = hs.Hessian.from_gradient(gradient, theta), exact(model)
        drawn = torch.randn(len(theta), 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for v in (drawn / drawn.norm(dim=0)).T:
            found = H._balanced(v)
            assert float((found.value - truth @ v).norm()) <= found.error <= H.product_error


def test_another_function_at_the_same_point_is_told_apart() -> None:
    theta = torch.linspace(0.5, 2, 12, dtype=torch.float64)

    def fingerprint(scale: float) -> str | None:
        return hs.Hessian.from_gradient(lambda t: -torch.sin(scale * t), theta).fingerprint

    first, again, other = map(fingerprint, (1.0, 1.0, 1.1))
    assert first == again != other


def test_results_carry_the_error_and_the_name() -> None:
    model = network().double()
    gradient, theta = gradient_of(model, 1e-5)
    truth = exact(model)
    values = torch.linalg.eigvalsh(truth).flip(0).numpy()
    H = hs.Hessian.from_gradient(gradient, theta)
    pairs = hs.eigenpairs(H, k=3, tol=0.2)
    assert pairs.product_error > 0
    assert (np.abs(pairs.values - values[:3]) <= pairs.residuals).all()
    assert (pairs.residuals >= pairs.product_error).all()
    assert not hs.eigenpairs(H, k=3, tol=1e-6).converged.any()  # no noisy product is as exact as that
    trace, diagonal = hs.trace(H), hs.diagonal(H)
    assert not trace.exact
    assert abs(float(trace) - float(truth.trace())) <= 4 * trace.stderr
    assert (np.abs(diagonal.value - truth.diagonal().numpy()) <= 4 * diagonal.stderr).all()
    density = hs.spectral_density(H, 2)
    assert density.wasserstein(hs.AtomicMeasure.of(values)) <= density.error
    norm = hs.frobenius_norm(H)
    assert abs(float(norm) - float(truth.norm())) <= 4 * norm.stderr
    for result in (pairs, trace, diagonal, density, norm):
        assert "FINITE DIFFERENCE" in result.check
    damped = H + 2.0
    b = torch.ones(len(theta), dtype=torch.float64)
    solution = hs.solve(damped, b, tol=1e-2)
    gap = (truth + 2.0 * torch.eye(len(theta), dtype=torch.float64)) @ solution.x - b
    assert float(gap.norm() / b.norm()) <= solution.residual
    assert "central differences" in repr(H)
    assert np.isnan((H @ H).product_error)


def test_a_loaded_result_still_says_so(tmp_path: Any) -> None:
    gradient, theta = gradient_of(network().double())
    saved = hs.trace(hs.Hessian.from_gradient(gradient, theta)).save(tmp_path / "trace")
    assert hs.Estimate.load(saved).product_error > 0


def test_fused_attention_is_differentiated_as_it_runs() -> None:
    """The flash kernel of the processor has no second derivative; its gradient is all that is used."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 6, 8, generator=generator) for _ in range(3))
    theta = torch.randn(8 * 8, generator=generator) / 3

    def loss(w: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q.to(w) @ w.view(8, 8), k.to(w), v.to(w), is_causal=True).square().mean()

    def gradient(w: Tensor) -> Tensor:
        w = w.requires_grad_()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            return torch.autograd.grad(loss(w), w)[0]

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        truth: Any = torch.autograd.functional.hessian(loss, theta.double())
    H = hs.Hessian.from_gradient(gradient, theta)
    assert float((H.dense().double() - truth).norm(dim=0).max()) <= H.product_error <= 0.02 * float(truth.norm())


def test_parameters_by_name() -> None:
    model = network().double()
    x, y = data(torch.float64)

    def gradient(at: dict[str, Tensor]) -> dict[str, Tensor]:
        leaves = {name: tensor.requires_grad_() for name, tensor in at.items()}
        found = torch.autograd.grad(F.cross_entropy(functional_call(model, leaves, (x,)), y), list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    before = [p.detach().clone() for p in model.parameters()]
    H = hs.Hessian.from_gradient(gradient, dict(model.named_parameters()))
    assert float((H.dense() - exact(model)).norm(dim=0).max()) <= H.product_error
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("step", [1e-3, 1.0, 1e3])
def test_the_scale_of_the_parameters_does_not_matter(step: float) -> None:
    """f(θ) = Σ cos(θ/s) s²: the right step is in units of s."""
    theta = torch.linspace(0.5, 2, 12, dtype=torch.float64) * step
    H = hs.Hessian.from_gradient(lambda t: -torch.sin(t / step) * step, theta)
    gap = (H.dense() + torch.cos(theta / step).diag()).norm(dim=0).max()
    assert float(gap) <= H.product_error < 1e-6


def _clipped(theta: Tensor) -> Tensor:
    found = gradient_of(network().double())[0](theta)
    return found * torch.linspace(0.1, 1, len(found), dtype=found.dtype)


BAD: dict[str, tuple[Any, Any, str]] = {
    "no function": (3, torch.ones(2), "gradient must be a function"),
    "no tensor": (lambda t: t, [1.0], "must be floating-point tensors"),
    "whole numbers": (lambda t: t, torch.arange(3), "must be floating-point tensors; got torch.int64"),
    "nothing": (lambda t: t, torch.ones(0), "there must be parameters"),
    "too short": (lambda t: t[:1], torch.ones(2), "must have 2 entries, as the parameters have; got 1"),
    "none": (lambda t: None, torch.ones(2), "must be floating-point tensors; got NoneType"),
    "nan": (lambda t: t / 0 * 0, torch.ones(2), "the gradient must be finite"),
    "no gradient": (_clipped, gradient_of(network().double())[1], "must be the gradient of one function"),
    "turned": (
        lambda at: {"a": at["a"].T},
        {"a": torch.ones(2, 3)},
        r"gradient of 'a' must have the shape \(2, 3\); got \(3, 2\)",
    ),
    "a missing name": (lambda at: {}, {"a": torch.ones(2)}, "the gradient must have every name; got none for 'a'"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_functions_are_named(name: str) -> None:
    gradient, at, message = BAD[name]
    with pytest.raises(InputError, match=message):
        hs.Hessian.from_gradient(gradient, at)


def test_bad_noise_is_named() -> None:
    with pytest.raises(InputError, match="noise must be a number of at least 0; got -1"):
        hs.Hessian.from_gradient(lambda t: t, torch.ones(2), noise=-1)
