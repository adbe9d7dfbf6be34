from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from curvature.cases import CASES, dense_hessian


@cache
def truth_of(name: str) -> Tensor:
    """Once for all tests of a case, which draws its network and data from a seed of its own."""
    return dense_hessian(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_hessian_is_the_hessian_of_the_loss_as_trained(name: str) -> None:
    case = CASES[name]()
    truth = truth_of(name)
    H = hs.Hessian(case.problem).dense()
    assert (H - truth).norm() <= 1e-10 * truth.norm()
    assert case.problem.loss_value() == pytest.approx(
        float(case.loss(dict(case.model.named_parameters())).detach()), rel=1e-12
    )


@pytest.mark.parametrize("name", [name for name in CASES if name != "huber"])
def test_every_method_gives_the_same_products(name: str) -> None:
    case = CASES[name]()
    truth = truth_of(name)
    assert (hs.Hessian(case.problem, method="batched").dense() - truth).norm() <= 1e-10 * truth.norm()


@pytest.mark.parametrize("memory", [0, "2kB"])
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_products_do_not_depend_on_what_is_kept(name: str, memory: float | str) -> None:
    case = CASES[name]()
    whole, tight = hs.Hessian(case.problem), hs.Hessian(case.problem._copy(memory=memory))
    V = torch.randn(whole.shape[1], 3, dtype=torch.float64)
    assert torch.allclose(whole @ V, tight @ V, rtol=1e-11, atol=1e-13)
    assert tight._engine.kept_batches < whole._engine.kept_batches


@pytest.mark.parametrize("name", [name for name in CASES if name != "custom"])
def test_gauss_newton_plus_functional_hessian_is_the_hessian(name: str) -> None:
    case = CASES[name]()
    truth = truth_of(name)
    G, R = hs.GaussNewton(case.problem).dense(), hs.FunctionalHessian(case.problem).dense()
    assert (G + R - truth).norm() <= 1e-10 * truth.norm()
    assert float(torch.linalg.eigvalsh(G).min()) >= -1e-12 * float(G.norm())
    assert float(R.norm()) > 1e-3 * float(truth.norm())


def test_gauss_newton_equals_its_closed_form_from_the_jacobian() -> None:
    case = CASES["mlp"]()
    J = hs.Jacobian(case.problem)
    dense = J.dense()
    x = torch.cat([b[0] for b in case.problem.batches])
    p = torch.softmax(case.model(x), -1)
    G = torch.zeros(dense.shape[1], dense.shape[1], dtype=dense.dtype)
    for n in range(len(x)):
        Jn = dense[4 * n : 4 * n + 4]
        G += Jn.T @ (torch.diag(p[n]) - torch.outer(p[n], p[n])) @ Jn / len(x)
    assert torch.allclose(hs.GaussNewton(case.problem).dense(), G, rtol=1e-10, atol=1e-13)
    u = torch.randn(J.shape[0], 2, dtype=torch.float64)
    assert torch.allclose(J.T @ u, dense.T @ u, rtol=1e-10, atol=1e-13)


def test_linear_regression_has_its_textbook_hessian() -> None:
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(30, 3, dtype=torch.float64)
    model = nn.Linear(4, 3, bias=False).double()
    H = hs.Hessian(hs.Problem.of(model, "squared_error", (x, y), batch_size=7)).dense()
    assert torch.allclose(H, torch.kron(torch.eye(3, dtype=torch.float64), 2 * x.T @ x / 30), atol=1e-13)


class Swap(torch.autograd.Function):
    """(a, b) ↦ (b, a), whose derivative hands on the vectors themselves, without a copy."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Any:
        return b.clone(), a.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[1], grads[0]


class Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return (a * b).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return Swap.apply(*ctx.saved_tensors)


def test_product_of_two_parameters_swaps_their_parts() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.idle = (nn.Parameter(torch.randn(3, dtype=torch.float64)) for _ in range(3))

    H = hs.Hessian(hs.Problem.of(Pair(), lambda m: Dot.apply(m.a, m.b), None))
    eye, none = torch.eye(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    exact = torch.cat([torch.cat(row, 1) for row in ((none, eye, none), (eye, none, none), (none,) * 3)])
    V = torch.randn(9, 2, dtype=torch.float64)
    before = V.clone()
    assert torch.equal(H @ V, exact @ V)
    assert torch.equal(H @ V[:, 0], exact @ V[:, 0])
    assert torch.equal(V, before)


def test_softmax_regression_has_its_textbook_hessian() -> None:
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randint(0, 3, (30,))
    model = nn.Linear(4, 3, bias=False).double()
    p = torch.softmax(model(x), -1).detach()
    truth = (
        sum(torch.kron(torch.diag(q) - torch.outer(q, q), torch.outer(a, a)) for q, a in zip(p, x, strict=True)) / 30
    )
    assert torch.allclose(hs.Hessian(hs.Problem.of(model, "cross_entropy", (x, y))).dense(), truth, atol=1e-13)


@pytest.mark.parametrize("make", [hs.Hessian, hs.GaussNewton, hs.FunctionalHessian])
def test_blocks_are_blocks_of_the_whole(make: type) -> None:
    case = CASES["transformer"]()
    op = make(case.problem)
    whole = op.dense()
    space = case.problem.space
    rows, columns = space.indices("block.up.*"), space.indices(["block.qkv.*", "position"])
    assert torch.allclose(op.block("block.up.*").dense(), whole[rows][:, rows], atol=1e-13)
    block = op.block("block.up.*", ["block.qkv.*", "position"])
    assert torch.allclose(block.dense(), whole[rows][:, columns], atol=1e-13)
    assert torch.allclose(block.T.dense(), whole[columns][:, rows], atol=1e-13)


def test_fisher_matrices() -> None:
    case = CASES["mlp"]()
    exact = hs.Fisher(case.problem, kind="exact").dense()
    assert torch.allclose(exact, hs.GaussNewton(case.problem).dense(), atol=1e-14)
    x = torch.cat([b[0] for b in case.problem.batches])
    y = torch.cat([b[1] for b in case.problem.batches])
    empirical = torch.zeros_like(exact)
    for a, c in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(case.model(a[None]), c[None])
        g = torch.cat([t.reshape(-1) for t in torch.autograd.grad(loss, list(case.model.parameters()))])
        empirical += torch.outer(g, g) / len(x)
    assert torch.allclose(hs.Fisher(case.problem, kind="empirical").dense(), empirical, atol=1e-13)
    draws = torch.stack([hs.Fisher(case.problem, "mc", rng=hs.Rng(s)).dense() for s in range(40)])
    error = (draws.mean(0) - exact).norm()
    spread = (draws.var(0).sum() / len(draws)).sqrt()  # the expected size of that error
    # A few directions dominate, so the ratio varies like one or two squared normals; a wrong factor would give 10.
    assert 0.2 * spread <= error <= 3 * spread
    assert 10 * spread < exact.norm()


def test_algebra_and_scipy() -> None:
    case = CASES["mlp"]()
    H, G = hs.Hessian(case.problem), hs.GaussNewton(case.problem)
    v = torch.randn(H.shape[0], dtype=torch.float64)
    assert torch.allclose((H + 2 * G) @ v, H @ v + 2 * (G @ v))
    assert torch.allclose((H - G) @ v, hs.FunctionalHessian(case.problem) @ v, atol=1e-13)
    assert torch.allclose(torch.from_numpy(H.to_scipy() @ v.numpy()), H @ v)


def test_float32_products_of_a_saturated_network_keep_their_digits() -> None:
    """Logits far apart: 1 - p is a difference of numbers near one unless it is computed from the other classes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5))
    x = torch.randn(2000, 6)
    with torch.no_grad():
        model[2].weight.mul_(20)
        first, second = model(x).topk(2).values.T
        x = x[first - second > 11][:64]  # every example is fitted to about 1e-5, as after long training
        y = model(x).argmax(-1)
    double = hs.Problem.of(model.double(), "cross_entropy", (x.double(), y))
    single = hs.Problem.of(model.float(), "cross_entropy", (x, y))
    v = torch.randn(double.space.size)
    for make in (hs.Hessian, hs.GaussNewton, hs.FunctionalHessian):
        truth = make(double) @ v.double()
        error = (make(single) @ v).double() - truth
        assert float(error.norm() / truth.norm()) < 2e-4
    leaves = [p.detach().requires_grad_() for p in model.parameters()]
    loss = nn.functional.cross_entropy(
        torch.func.functional_call(model, dict(zip(dict(model.named_parameters()), leaves, strict=True)), (x,)), y
    )
    naive = torch.autograd.grad(torch.autograd.grad(loss, leaves, create_graph=True), leaves, double.space.unpack(v))
    truth = hs.Hessian(double) @ v.double()
    # The plain float32 double backward is what we improve on: it must be visibly worse here.
    assert float((torch.cat([g.reshape(-1) for g in naive]).double() - truth).norm() / truth.norm()) > 1e-3
