"""Formulas of the paper that need a correction or a condition, each decided here."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate
from torch import nn

import hesscope as hs
import kron.kron_cases as cases
from hesscope.kron import decouple, layer_hessian


def test_gauss_newton_form_needs_piecewise_linear_layers() -> None:
    """(21): M = Gᵀ A G fails behind a tanh, and holds for the last layer of any network."""
    problem, _ = cases.weighted_tanh_mlp()
    for layer, holds in (("0", False), ("2", True)):
        exact = decouple(problem, layer, curvature="second_derivative").output_hessian
        factors = decouple(problem, layer, curvature="gauss_newton").output_hessian
        assert (float((exact - factors).norm()) <= 1e-12 * float(exact.norm())) == holds


def test_softmax_curvature_is_q_transpose_q() -> None:
    p = torch.softmax(torch.randn(5, generator=hs.Rng(0).torch(), dtype=torch.float64), 0)
    a = torch.diag(p) - torch.outer(p, p)
    q = torch.diag(p.sqrt()) @ (torch.eye(5) - torch.outer(torch.ones(5).double(), p))
    assert torch.allclose(q.T @ q, a, atol=1e-15)
    assert float((q @ q.T - a).norm()) > 0.1 * float(a.norm())


def test_reduce_is_exact_for_constant_inputs_and_expand_is_not() -> None:
    """With the same patch at every position H is a single Kronecker product, found by "reduce", missed by (33)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 3)).double()
    x = torch.randn(1, 2, 1, 1, dtype=torch.float64).expand(1, 2, 3, 3).contiguous()
    problem = hs.Problem.of(model, "cross_entropy", (x, torch.tensor([1])))
    d = decouple(problem, "0")
    exact = layer_hessian(problem, "0").dense()
    for kind in ("reduce", "kfac_reduce"):
        assert torch.allclose(d.with_reduction(kind).operator.dense(), exact, rtol=1e-10, atol=1e-14)
    expand = d.operator.dense()
    assert float((expand - exact).norm()) > 0.1 * float(exact.norm())


def test_printed_matricisation_would_mix_rows() -> None:
    """(i-1)m + j runs over the wrong stride unless m = n."""
    u, v = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0, 0.0])
    h = torch.kron(u, v)
    m, n = 2, 3
    printed = torch.tensor([[h[i * m + j] for j in range(n)] for i in range(m)])
    right = torch.tensor([[h[i * n + j] for j in range(n)] for i in range(m)])
    assert torch.equal(right, torch.outer(u, v))
    assert not torch.equal(printed, right)


def test_row_sums_of_gaussian_weights_do_not_vanish() -> None:
    """Lemma B.1 has them tend to 0; a sum of n entries of variance 1/n has variance 1 at every n (within 4 standard errors)."""
    generator = torch.Generator().manual_seed(0)
    for n in (16, 1024):
        sums = (torch.randn(2000, n, generator=generator, dtype=torch.float64) / n**0.5).sum(1)
        assert abs(float(sums.var()) - 1) <= 4 * (2 / 2000) ** 0.5


def test_printed_moments_of_rectified_gaussians() -> None:
    """(80) is right; (90) lacks a power of (π-1)/(2π); ‖E[xxᵀ]‖² has d(1 - 1/π²)/4, where (186) has d(π-1)/(2π)."""
    pi = math.pi
    density = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * pi)  # noqa: E731
    mean = 1 / math.sqrt(2 * pi)
    fourth = integrate.quad(lambda t: (t - mean) ** 4 * density(t), 0, 12)[0] + mean**4 / 2
    assert fourth == pytest.approx((6 * pi**2 - 10 * pi - 3) / (4 * pi**2), rel=1e-10)
    variance = (pi - 1) / (2 * pi)
    printed = (6 * pi**2 - 10 * pi - 3) * (pi - 1) / (8 * pi**3)
    assert printed * variance == pytest.approx(variance**2 * fourth, rel=1e-10)
    d = 7
    second = torch.full((d, d), 1 / (2 * pi), dtype=torch.float64).fill_diagonal_(0.5)
    square = float(second.square().sum())
    assert square == pytest.approx(d**2 / (4 * pi**2) + d * (1 - 1 / pi**2) / 4, rel=1e-12)
    assert abs(square - (d**2 / (4 * pi**2) + d * (pi - 1) / (2 * pi))) > 0.1 * square


def test_projected_output_hessians_keep_less_than_their_norm() -> None:
    """Lemma B.18 has ‖WM*Wᵀ‖²/‖M*‖² tend to 1; with the probabilities of rectified inputs it tends to (E[π]²/E[π²])² = 0.687.

    Its mean is of order 1/n off (17/n by the experiment on the lemmas) and it scatters by 2/√n or so.
    """
    n, ratios = 1500, []
    a = torch.diag(torch.full((4,), 0.25)) - torch.full((4, 4), 1 / 16)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(4, n, generator=generator, dtype=torch.float64) / n**0.5
        pi = torch.special.ndtr(torch.randn(n, generator=generator, dtype=torch.float64) / (math.pi - 1) ** 0.5)
        inner = w.T @ a.double() @ w
        star = pi[:, None] * inner * pi + torch.diag(pi * (1 - pi) * inner.diagonal())
        ratios.append(float((w @ star @ w.T).norm() ** 2 / star.norm() ** 2))
    limit = (1 + 2 / math.pi * math.asin(1 / math.pi)) ** -2
    assert sum(ratios) / 4 == pytest.approx(limit, abs=0.06)
    assert max(ratios) < 0.9
