"""One row per layer against dense Hessians of autograd that share no code with the library."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.errors import InputError


def dense_blocks(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The diagonal block of every layer in float64, from torch alone."""
    model = model.double()
    parameters = dict(model.named_parameters())
    found = {}
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in parameters):
        own = {name: t for name, t in parameters.items() if name.rpartition(".")[0] == layer}

        def loss(flat: Tensor, own: Mapping[str, Tensor] = own) -> Tensor:
            parts = dict(zip(own, torch.split(flat, [t.numel() for t in own.values()]), strict=True))
            moved = {name: part.view(own[name].shape) for name, part in parts.items()}
            return nn.functional.cross_entropy(torch.func.functional_call(model, moved, (x.double(),)), y)

        start = torch.cat([t.detach().reshape(-1) for t in own.values()])
        found[layer] = torch.autograd.functional.hessian(loss, start)
    return found


def network(kind: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(3)
    x, y = torch.randn(20, 2, 6, 6), torch.randint(0, 3, (20,))
    act, width = (nn.Tanh(), 12) if kind == "curved" else (nn.ReLU(), 4)
    model = nn.Sequential(nn.Conv2d(2, width, 3), nn.BatchNorm2d(width), act, nn.Conv2d(width, 3, 3), nn.Flatten())
    model.append(nn.Linear(12, 3))
    model(x)  # statistics of batch-norm
    return model.eval(), x, y


@pytest.mark.parametrize("kind", ["piecewise linear", "curved"])
def test_every_number_is_that_of_the_dense_block(kind: str) -> None:
    model, x, y = network(kind)
    found = hs.per_layer(hs.Problem.of(model, "cross_entropy", (x, y)), tol=0.02)
    truth = dense_blocks(model, x, y)
    assert found.names == tuple(truth)
    values = {layer: torch.linalg.eigvalsh(block) for layer, block in truth.items()}
    traces = np.array([float(block.trace()) for block in truth.values()])
    norms = np.array([float(block.norm()) for block in truth.values()])
    tops = np.array([float(v[-1]) for v in values.values()])
    sizes = np.array([float(v.abs().max()) for v in values.values()])
    assert (np.abs(found.trace - traces) <= 4 * found.trace_stderr + 1e-5 * traces.max()).all()
    assert (np.abs(found.frobenius - norms) <= 4 * found.frobenius_stderr + 1e-5 * norms.max()).all()
    assert (np.abs(found.top - tops) <= found.top_error + 1e-5 * tops.max()).all()
    assert np.allclose(found.stable_rank, norms**2 / sizes**2, rtol=0.1)
    assert np.allclose(found.share, traces / traces.sum(), atol=0.02)
    assert found.share.sum() == pytest.approx(1)
    if kind == "piecewise linear":
        assert not found.trace_stderr.any()
        assert not found.frobenius_stderr.any()
        assert found.products == 0


def test_kronecker_errors_are_those_of_the_comparison() -> None:
    model, x, y = network("piecewise linear")
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    found = dict(zip(hs.per_layer(problem).names, hs.per_layer(problem).kronecker_error, strict=True))
    assert np.isnan(found["1"])  # batch-norm has no such form
    for layer in ("0", "3", "5"):
        assert found[layer] == pytest.approx(hs.decouple(problem, layer).compare(3).frobenius_error, rel=1e-3)


def test_layers_without_structure_are_measured_by_products() -> None:
    """A weight that is used twice, and a loss that is only a number."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.out = nn.Linear(9, 9), nn.Linear(9, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(torch.tanh(self.shared(torch.tanh(self.shared(x)))))
            return out

    torch.manual_seed(0)
    model, x, y = Twice(), torch.randn(15, 9), torch.randint(0, 3, (15,))
    truth = dense_blocks(model, x, y)
    model = model.float()
    problem = hs.Problem.of(
        model,
        lambda m, batch: (nn.functional.cross_entropy(m(batch[0]), batch[1], reduction="sum"), len(batch[0])),
        (x, y),
    )
    found = hs.per_layer(problem, tol=0.02)
    assert not any("example" in method for method in found.methods)
    assert np.isnan(found.kronecker_error[0])  # a weight that is used twice
    for row, block in enumerate(truth.values()):
        assert abs(found.trace[row] - float(block.trace())) <= 4 * found.trace_stderr[row] + 1e-5 * abs(
            found.trace[row]
        )
        assert abs(found.frobenius[row] - float(block.norm())) <= 4 * found.frobenius_stderr[row] + 1e-4
        assert abs(found.top[row] - float(torch.linalg.eigvalsh(block)[-1])) <= found.top_error[row] + 1e-5


def test_a_negative_block_has_its_own_norm() -> None:
    """The largest eigenvalue and the largest in magnitude are told apart."""
    torch.manual_seed(0)
    model = nn.Linear(6, 1, bias=False)
    x = torch.randn(30, 6)
    problem = hs.Problem.of(model, lambda m, batch: (-(m(batch) ** 2).sum(), len(batch)), [x])
    found = hs.per_layer(problem)
    truth = torch.linalg.eigvalsh(-2 * x.T @ x / 30)
    assert found.top[0] == pytest.approx(float(truth[-1]), rel=1e-4)
    assert found.norm[0] == pytest.approx(-float(truth[0]), rel=1e-4)


def test_refusals() -> None:
    with pytest.raises(InputError, match="Problem"):
        hs.per_layer("model")
    model, x, y = network("curved")
    with pytest.raises(InputError, match="tol must be"):
        hs.per_layer(hs.Problem.of(model, "cross_entropy", (x, y)), tol=0)
    with pytest.raises(InputError, match="kronecker must be True or False"):
        hs.per_layer(hs.Problem.of(model, "cross_entropy", (x, y)), kronecker="yes")


class LowRank(nn.Linear):
    """Two matrices in series beside a third: affine in each, not in all."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.a, self.b = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + nn.functional.linear(nn.functional.linear(x, self.a), self.b)


def test_a_module_of_two_matrices_in_series_is_no_square_of_gradients() -> None:
    torch.manual_seed(0)
    model, x, y = (
        nn.Sequential(LowRank(5, 6), nn.ReLU(), nn.Linear(6, 3)),
        torch.randn(30, 5),
        torch.randint(0, 3, (30,)),
    )
    found, truth = hs.per_layer(hs.Problem.of(model, "cross_entropy", (x, y))), dense_blocks(model, x, y)
    assert found.methods[1] == "per-example gradients"
    tops = [float(torch.linalg.eigvalsh(block)[-1]) for block in truth.values()]
    assert np.allclose(found.top, tops, rtol=1e-4)
    assert np.allclose(found.frobenius, [float(block.norm()) for block in truth.values()], rtol=1e-4)
