"""The layer's Hessian by GEMMs is the one by double backward, for layers of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import hesscope as hs
import kron.kron_cases as cases
from hesscope.kron import layer_hessian
from hesscope.kron.chunked import curvature_blocks

FACTORS, SECOND = "Gauss-Newton factors, exact here", "second derivative, exact"


@pytest.mark.parametrize(
    ("case", "layer", "curvature"),
    [
        (cases.relu_mlp, "fc1", FACTORS),
        (cases.relu_mlp, "fc2", FACTORS),
        (cases.relu_mlp, "fc3", FACTORS),
        (cases.weighted_tanh_mlp, "0", SECOND),
        (cases.weighted_tanh_mlp, "2", FACTORS),
        (cases.tokens, "blocks.0.qkv", SECOND),
        (cases.tokens, "blocks.0.out", SECOND),
        (cases.tokens, "blocks.0.down", SECOND),
        (cases.tokens, "head", FACTORS),
        (cases.convolutions, "0", FACTORS),
        (cases.convolutions, "2", FACTORS),
        (cases.convolutions, "5", FACTORS),
        (lambda: cases.convolutions(nn.Tanh), "0", SECOND),
        (lambda: cases.convolutions(nn.Tanh), "5", FACTORS),
        (cases.sentences, "mix", FACTORS),
        (cases.sentences, "each", FACTORS),
    ],
)
@pytest.mark.parametrize("memory", [0.5, 0])
def test_exact_for_every_kind_of_layer(
    case: Callable[[], tuple[hs.Problem, Callable[[nn.Module], torch.Tensor]]],
    layer: str,
    curvature: str,
    memory: float,
) -> None:
    problem, loss = case()
    problem.memory_budget.limit = 10**9 if memory else 0
    op = layer_hessian(problem, layer)
    assert op.curvature == curvature
    truth = cases.block_by_double_backward(problem, loss, layer)
    ours = op.dense()
    assert float((ours - truth).abs().max()) <= 1e-12 * float(truth.abs().max())


def test_products_of_blocks_and_single_vectors_agree() -> None:
    problem, _ = cases.convolutions()
    op = layer_hessian(problem, "2")
    v = torch.randn(op.shape[1], 3, dtype=torch.float64, generator=hs.Rng(0).torch())
    together = op @ v
    alone = torch.stack([op @ v[:, j] for j in range(3)], 1)
    assert torch.allclose(together, alone, rtol=1e-13, atol=1e-16)


def test_factors_in_many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, loss = cases.relu_mlp()
    monkeypatch.setattr(curvature_blocks, "_TILE", 4 * 3 * 6 * 8)  # four of a batch's seven examples
    truth = cases.block_by_double_backward(problem, loss, "fc2")
    assert torch.allclose(layer_hessian(problem, "fc2").dense(), truth, rtol=1e-12, atol=1e-15)


def test_float32_is_as_accurate_as_float32_can_be() -> None:
    problem, loss = cases.relu_mlp()
    truth = cases.block_by_double_backward(problem, loss, "fc2")
    ours = layer_hessian(problem.cast(torch.float32), "fc2").dense().double()
    assert 0 < float((ours - truth).abs().max()) <= 2e-6 * float(truth.abs().max())


def test_several_rows_of_the_loss_per_unit() -> None:
    """One hidden vector feeds three predictions: factors must not mix the rows of an example."""

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.heads = nn.Linear(4, 5), nn.Linear(5, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.heads(torch.relu(self.body(x))).view(-1, 3, 2)

    torch.manual_seed(0)
    model = Heads().double()
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.randint(0, 2, (7, 3))
    y[0, 1] = y[4, 2] = -100
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (x, y), batch_size=3)
    loss = nn.CrossEntropyLoss()
    for layer in ("body", "heads"):
        op = layer_hessian(problem, layer)
        assert op.curvature == FACTORS
        truth = cases.block_by_double_backward(problem, lambda net: loss(net(x).transpose(1, 2), y), layer)
        assert torch.allclose(op.dense(), truth, rtol=1e-12, atol=1e-15)


def test_examples_in_the_second_axis() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(torch.tanh(self.inner(x.transpose(0, 1))).prod(0))

    torch.manual_seed(1)
    model = TimeFirst().double()
    x, y = torch.randn(5, 3, 3, dtype=torch.float64), torch.randint(0, 2, (5,))
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=5)
    truth = cases.block_by_double_backward(problem, lambda net: nn.functional.cross_entropy(net(x), y), "inner")
    assert torch.allclose(layer_hessian(problem, "inner").dense(), truth, rtol=1e-12, atol=1e-15)


def test_gauss_newton_on_request_is_the_gauss_newton_block() -> None:
    problem, loss = cases.tokens()
    op = layer_hessian(problem, "blocks.0.qkv", curvature="gauss_newton")
    assert op.curvature == "Gauss-Newton factors, an approximation here"
    truth = hs.GaussNewton(problem).block("blocks.0.qkv.weight").dense()
    assert torch.allclose(op.dense(), truth, rtol=1e-11, atol=1e-14)
    assert not torch.allclose(op.dense(), cases.block_by_double_backward(problem, loss, "blocks.0.qkv"), rtol=1e-3)


def test_a_loss_that_is_only_a_number() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    x, w = torch.randn(10, 3, dtype=torch.float64), torch.rand(10, dtype=torch.float64)

    def total(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return (batch[1] * net(batch[0]).squeeze(-1) ** 4).sum(), batch[1].sum()

    problem = hs.Problem.of(model, total, [(x[:3], w[:3]), (x[3:], w[3:])])
    truth = cases.block_by_double_backward(problem, lambda net: total(net, (x, w))[0] / w.sum(), "0")
    assert torch.allclose(layer_hessian(problem, "0").dense(), truth, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_inputs_that_are_always_zero_are_left_out(activation: type[nn.Module]) -> None:
    generator = hs.Rng(3).torch()
    x = torch.randn(14, 8, dtype=torch.float64, generator=generator)
    x[:, 5] = 0.0
    x[:7, 2] = 0.0  # in the first batch only
    y = torch.randint(0, 3, (14,), generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 5), activation(), nn.Linear(5, 3)).double()
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=7)
    op = layer_hessian(problem, "0")
    held = [block.held.shape[-1] for block in op.all_blocks() if isinstance(block, curvature_blocks.PositionBlock)]
    assert held == [6, 7] or held == [7]
    truth = hs.Hessian(problem).block("0.weight").dense()
    assert torch.allclose(op.dense(), truth, rtol=1e-12, atol=1e-15)
    assert float(op.dense()[5].abs().max()) == 0.0
    rearranged = truth.view(5, 8, 5, 8)
    b = torch.randn(8, 8, dtype=torch.float64, generator=generator)
    a = torch.randn(5, 5, dtype=torch.float64, generator=generator)
    inputs = sum(form.against_inputs(b) for form in op.all_blocks()) * problem.scale
    outputs = sum(form.against_outputs(a) for form in op.all_blocks()) * problem.scale
    assert torch.allclose(inputs, torch.einsum("mnkl,nl->mk", rearranged, b), rtol=1e-10, atol=1e-14)
    assert torch.allclose(outputs, torch.einsum("mnkl,mk->nl", rearranged, a), rtol=1e-10, atol=1e-14)
