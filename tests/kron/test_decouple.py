"""E[M], E[x xᵀ] and the errors of the conjecture, against sums written out and dense matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import hesscope as hs
import kron.kron_cases as cases
from hesscope.kron import decouple, decouple_layers
from hesscope.kron.chunked import chunks
from hesscope.kron.chunked.grams import GramSum
from hesscope.kron.curvature_choice import layer_curvature
from hesscope.kron.frobenius import Distances
from hesscope.kron.nearest import nearest_kronecker


def _examples(problem: hs.Problem) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for x, y in problem.batches:
        yield from zip(x, y, strict=True)


def test_factors_are_the_means_over_examples() -> None:
    problem, _ = cases.relu_mlp()
    d = decouple(problem, "fc2")
    model, inputs, hessians = problem.model, [], []
    for x, y in _examples(problem):
        h = torch.relu(model.fc1(x)).detach()
        z = model.fc2(h).detach()
        inputs.append(h)
        hessians.append(
            torch.autograd.functional.hessian(
                lambda z, y=y: nn.functional.cross_entropy(model.fc3(torch.relu(z)), y), z
            )
        )
    h, m = torch.stack(inputs), torch.stack(hessians)
    assert torch.allclose(d.output_hessian, m.mean(0), rtol=1e-12, atol=1e-15)
    assert torch.allclose(d.input_autocorrelation, h.T @ h / len(h), rtol=1e-12)
    assert torch.allclose(d.input_mean, h.mean(0), rtol=1e-12)
    assert torch.allclose(d.mean_direction, h.mean(0) / h.mean(0).norm(), rtol=1e-12)
    exact = torch.einsum("nij,na,nb->iajb", m, h, h).reshape(36, 36) / len(h)
    assert torch.allclose(d.exact.dense(), exact, rtol=1e-11, atol=1e-15)
    assert torch.allclose(d.operator.dense(), torch.kron(m.mean(0), h.T @ h / len(h)), rtol=1e-11, atol=1e-15)


def test_expectations_count_as_the_loss_does() -> None:
    """With zero logits M_n = w_n (I/c - 11ᵀ/c²): the conjecture is an identity if and only if inputs are weighted too."""
    problem, _ = cases.weighted_tanh_mlp()
    with torch.no_grad():
        problem = problem.at({"2.weight": torch.zeros(3, 5), "2.bias": torch.zeros(3)}, partial=True)
    d = decouple(problem, "2")
    assert torch.allclose(d.operator.dense(), d.exact.dense(), rtol=1e-12, atol=1e-16)
    assert torch.allclose(d.output_hessian, torch.eye(3).double() / 3 - 1 / 9, rtol=1e-12)
    assert d.errors().frobenius.max() < 1e-7


def test_ignored_tokens_weigh_nothing() -> None:
    problem, _ = cases.tokens()
    zero = problem.at({"head.weight": torch.zeros(5, 4)}, partial=True)
    d = decouple(zero, "head")
    assert torch.allclose(d.operator.dense(), d.exact.dense(), rtol=1e-11, atol=1e-16)


def test_gram_sums_beyond_one_strip() -> None:
    draw = hs.Rng(11).torch()
    parts = [torch.randn(rows, 300, generator=draw, dtype=torch.float64) for rows in (5, 400)]
    total = GramSum(300)
    for x, scale in zip(parts, (1.0, 0.25), strict=True):
        total.add(x, scale)
        total.settle()
    truth = parts[0].T @ parts[0] + 0.25 * parts[1].T @ parts[1]
    assert torch.allclose(total.value(), truth, rtol=1e-12, atol=1e-12)


def test_all_layers_in_one_pass() -> None:
    problem, _ = cases.relu_mlp()
    together = decouple_layers(problem)
    assert list(together) == ["fc1", "fc2", "fc3"]
    for name, d in together.items():
        alone = decouple(problem, name)
        assert torch.allclose(d.output_hessian, alone.output_hessian, rtol=1e-13, atol=1e-17)
        assert torch.allclose(d.input_autocorrelation, alone.input_autocorrelation, rtol=1e-13)


def test_layers_with_and_without_interacting_positions_in_one_pass() -> None:
    problem, _ = cases.tokens()
    names = ["blocks.0.qkv", "blocks.0.down", "head"]
    together = decouple_layers(problem, names, curvature="gauss_newton")
    for name, d in together.items():
        alone = decouple(problem, name, curvature="gauss_newton")
        assert torch.allclose(d.output_hessian, alone.output_hessian, rtol=1e-11, atol=1e-16)
    assert [d.positions for d in together.values()] == [4, 1, 1]


def test_chunks_whose_targets_are_all_ignored() -> None:
    problem, _ = cases.weighted_tanh_mlp()
    x, y = (torch.cat([batch[i] for batch in problem.batches]) for i in range(2))
    nothing = (x[:3], torch.full((3,), -100))
    padded = hs.Problem.of(problem.model, problem.loss.module, [(x, y), nothing])
    assert torch.allclose(decouple(padded, "2").output_hessian, decouple(problem, "2").output_hessian, rtol=1e-12)
    assert torch.allclose(decouple(padded, "0").exact.dense(), decouple(problem, "0").exact.dense(), atol=1e-15)


@pytest.mark.parametrize("case", [lambda: cases.convolutions()[0], lambda: cases.convolutions(nn.Tanh)[0]])
def test_reductions_over_positions(case: str) -> None:
    """The three forms from the dense M of every example, P m x P m."""
    problem, model = case(), case().model
    expand, reduce, full, mean = [], [], [], []
    for x, y in _examples(problem):
        before = model[1](model[0](x[None]))
        patches = nn.functional.unfold(nn.functional.pad(before, (2, 2, 2, 2), mode="circular"), 3, dilation=2).squeeze(
            0
        )
        z = model[2](before).detach()
        positions = z[0, 0].numel()
        m = torch.autograd.functional.hessian(
            lambda z, y=y: nn.functional.cross_entropy(model[3:](z), y[None]), z
        ).reshape(4, positions, 4, positions)
        expand.append(torch.einsum("ipjp->ij", m) / positions)
        reduce.append(m.sum((1, 3)) / positions)
        full.append(patches @ patches.T)
        mean.append(positions * torch.outer(patches.mean(1), patches.mean(1)))
    e, r, xx, xm = (torch.stack(t).mean(0).detach() for t in (expand, reduce, full, mean))
    d = decouple(problem, "2")
    for kind, left, right in (("expand", e, xx), ("reduce", r, xx), ("kfac_reduce", r, xm)):
        got = d.with_reduction(kind)
        assert torch.allclose(got.output_hessian, left, rtol=1e-10, atol=1e-15)
        assert torch.allclose(got.input_autocorrelation, right, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("case", "layer"),
    [
        (cases.relu_mlp, "fc1"),
        (cases.weighted_tanh_mlp, "0"),
        (cases.convolutions, "2"),
        (cases.tokens, "blocks.0.qkv"),
        (cases.sentences, "each"),
    ],
)
def test_comparison_and_nearest_product_against_dense_matrices(case: str, layer: str) -> None:
    problem, _ = case()
    d = decouple(problem, layer)
    h, k = d.exact.dense(), d.operator.dense()
    found, errors = d.compare(k=4), d.errors()
    spectral = float(torch.linalg.matrix_norm(h - k, 2) / torch.linalg.matrix_norm(h, 2))
    assert found.spectral_error == pytest.approx(spectral, rel=1e-6)
    assert found.frobenius_error == pytest.approx(float((h - k).norm() / h.norm()), rel=1e-9)
    assert found.frobenius_stderr == 0
    values, vectors = torch.linalg.eigh(h)
    assert np.allclose(found.eigenvalues, values.flip(0)[:4].numpy(), rtol=1e-8)
    assert np.allclose(found.approximate_eigenvalues, torch.linalg.eigvalsh(k).flip(0)[:4].numpy(), rtol=1e-8)
    top = vectors.flip(1)[:, :3]
    guess = d.eigenpairs(3)[1]
    assert found.overlap[2] == pytest.approx(float((top.T @ guess).norm() ** 2 / 3), abs=1e-8)
    m, n = len(d.output_hessian), len(d.input_autocorrelation)
    singular = torch.linalg.svdvals(h.view(m, n, m, n).permute(0, 2, 1, 3).reshape(m * m, n * n))
    best = float((h.norm() ** 2 - singular[0] ** 2).sqrt() / h.norm())
    assert errors.names[-1] == "nearest"
    near = d.nearest().operator.dense()
    assert float((h - near).norm() / h.norm()) == pytest.approx(best, rel=1e-6)
    assert d.nearest().eigenpairs(1)[0][0] == pytest.approx(float(torch.linalg.eigvalsh(near)[-1]), rel=1e-9)
    assert errors.frobenius[-1] == pytest.approx(best, rel=1e-6)
    assert errors.nearest_residual <= 1e-4
    assert (errors.frobenius[:-1] >= best * (1 - 1e-9)).all()
    assert len(errors.names) == (2 if d.positions == 1 else 4)


def test_nearest_product_of_a_product_is_that_product() -> None:
    problem, _ = cases.relu_mlp()
    with torch.no_grad():
        problem = problem.at({"fc3.weight": torch.zeros(4, 6), "fc3.bias": torch.zeros(4)}, partial=True)
    d = decouple(problem, "fc3")
    best = nearest_kronecker(d.exact, torch.eye(4), tol=1e-9)
    assert torch.allclose(torch.kron(best.left, best.right), d.exact.dense(), rtol=1e-9, atol=1e-14)
    assert float(torch.linalg.eigvalsh(best.left)[0]) >= -1e-12
    assert float(torch.linalg.eigvalsh(best.right)[0]) >= -1e-12
    again = nearest_kronecker(d.exact, torch.zeros(4, 4), tol=1e-9)
    assert again.sigma == pytest.approx(best.sigma, rel=1e-9)


def test_frobenius_by_probes_is_calibrated() -> None:
    problem, _ = cases.convolutions()
    d = decouple(problem, "2")
    top = torch.linalg.eigh(d.exact.dense())[1][:, -10:]
    for kron in (None, d.operator):
        exact, zero = Distances(d.exact).squared(kron)
        value, stderr = Distances(d.exact, top, exact_flops=0).squared(kron)
        assert zero == 0
        assert 0 < stderr < 0.5 * exact
        assert abs(value - exact) <= 4 * stderr


def test_exact_frobenius_norm_both_ways() -> None:
    for case, layer in ((cases.relu_mlp, "fc1"), (cases.weighted_tanh_mlp, "0"), (cases.convolutions, "2")):
        problem, _ = case()
        d = decouple(problem, layer)
        found = Distances(d.exact)
        for kron in (None, d.operator):
            assert found._by_pairs(kron) == pytest.approx(found._by_columns(kron), rel=1e-9)


def test_memory_bounds_the_chunk_not_the_answer() -> None:
    problem, _ = cases.convolutions(nn.Tanh)
    small = hs.Problem.of(problem.model, "cross_entropy", list(problem.batches), memory=0)
    a, b = decouple(problem, "2"), decouple(small, "2")
    assert torch.allclose(a.output_hessian, b.output_hessian, rtol=1e-12, atol=1e-16)
    assert small.memory_budget.used == 0
    assert a.curvature == "second derivative, exact"


def test_output_hessians_of_all_examples_are_never_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 matrices of 48 x 48 take 5.5 MB; with a knob of 0.2 MB no piece is larger than that."""
    monkeypatch.setattr(chunks, "_LEAST_CHUNK", 2e5)
    model = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 3)).double()
    draw = hs.Rng(12).torch()
    data = torch.randn(300, 4, generator=draw, dtype=torch.float64), torch.randint(0, 3, (300,), generator=draw)
    problem = hs.Problem.of(model, "cross_entropy", data, memory=0)
    how = layer_curvature(problem, "0", "auto")
    found = chunks.ChunkedData(problem, [how])
    sizes = [m for chunk in found.chunks() if (m := found.layer_chunks(chunk)[0].dense) is not None]
    assert sum(len(m) for m in sizes) == 300
    assert 1e5 < max(m.nbytes for m in sizes) <= 2e5
    whole = torch.cat(sizes).mean(0)
    assert torch.allclose(decouple(problem, "0").output_hessian, whole, rtol=1e-12, atol=1e-16)


def test_alignment_and_ratio() -> None:
    problem, _ = cases.relu_mlp()
    d = decouple(problem, "fc2")
    values, vectors = torch.linalg.eigh(d.input_autocorrelation)
    assert d.alignment() == pytest.approx(float((vectors[:, -1] @ d.input_mean) ** 2 / d.input_mean.norm() ** 2))
    assert d.spectral_ratio() == pytest.approx(float(values[-1] / values[-2]))
    covariance = d.input_autocorrelation - torch.outer(d.input_mean, d.input_mean)
    bound = float(d.input_mean.norm() ** 2 / torch.linalg.matrix_norm(covariance, 2))
    assert d.spectral_ratio() >= bound * (1 - 1e-12)  # (264) without its "- 1"


@pytest.mark.parametrize("seed", range(4))
def test_what_rounding_leaves_of_an_exact_product_has_an_error_that_holds_it(seed: int) -> None:
    """With a squared error, H of a linear layer is a Kronecker product: its error is the difference of equal squares."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 4))
    problem = hs.Problem.of(model, "mse", (torch.randn(50, 6), torch.randn(50, 4)))
    found = decouple(problem, "0").errors()
    assert (found.frobenius <= 2e-3).all()
    assert (found.frobenius - 1e-6 <= 2 * found.frobenius_stderr).all()
    assert (found.frobenius_stderr > 0).all()
