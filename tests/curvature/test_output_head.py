"""Products without logits: the output layer and cross-entropy in closed form, against dense double backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hesscope as hs
from hesscope.curvature.engines import head_terms, output_head
from hesscope.curvature.engines.graphs import GradientGraphs

TOKENS, WIDTH, CLASSES = 5, 4, 7


class Language(nn.Module):
    """A transformer of one block; `head` makes logits of hidden states."""

    def __init__(self, head: Callable[[Language, Tensor], Tensor]) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(CLASSES, WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 6), nn.Linear(6, WIDTH)
        self.out, self.scale = nn.Linear(WIDTH, CLASSES), nn.Parameter(torch.ones(()))
        self.make = head

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.norm(x + self.down(F.gelu(self.up(x))))
        return self.make(self, x)


HEADS: dict[str, Callable[[Language, Tensor], Tensor]] = {
    "own": lambda model, x: model.out(x),
    "tied": lambda model, x: F.linear(x, model.embed.weight),
    "tied by a transpose": lambda model, x: x @ model.embed.weight.T,
    "flat": lambda model, x: model.out(x.flatten(0, 1)).view(*x.shape[:2], -1),
    "classes second": lambda model, x: model.out(x).transpose(1, 2),
}
OTHERS: dict[str, Callable[[Language, Tensor], Tensor]] = {
    "a number that is one": lambda model, x: model.out(x) * model.scale,
    "temperature": lambda model, x: model.out(x) / 2,
    "soft cap": lambda model, x: 3 * torch.tanh(model.out(x) / 3),
    "curved only": lambda model, x: (z := model.out(x)) + (z - z.detach()) ** 2,
    "used twice": lambda model, x: model.out(model.out(x)[..., :WIDTH]),
    "mixed rows": lambda model, x: model.out(x).roll(1, 1),
    "run again": lambda model, x: checkpoint(lambda y: model.out(torch.tanh(y)), x, use_reentrant=False),
    "looked at": lambda model, x: z if float((z := model.out(x)).detach().std()) > 0 else z * float("nan"),
    "sorted classes": lambda model, x: model.out(x).flip(-1),
}


def problem_of(head: Callable[[Language, Tensor], Tensor], **more: Any) -> hs.Problem:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Language(head).double()
        tokens, labels = torch.randint(0, CLASSES, (2, 3, TOKENS))
        weight = torch.rand(CLASSES, dtype=torch.float64) + 0.5
    labels[0, 2] = -100
    loss = nn.CrossEntropyLoss(weight=weight, **more.pop("loss", {}))
    return hs.Problem.of(model, loss, (tokens, labels), batch_size=2, **more)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_head, "LEAST_CLASSES", 2)
    monkeypatch.setattr(head_terms, "_CHUNK_BYTES", 4 * CLASSES * 8)


def dense(problem: hs.Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Hessian, Gauss-Newton and empirical Fisher matrix by torch.func, of the loss as torch writes it."""
    names, own = list(problem.parameters), [t.detach() for t in problem.parameters.values()]
    batches, loss = list(problem.batches), problem.loss.module
    shapes, sizes = [t.shape for t in own], [t.numel() for t in own]

    def logits(theta: Tensor, tokens: Tensor) -> Tensor:
        pieces = [p.view(s) for p, s in zip(theta.split(sizes), shapes, strict=True)]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = torch.func.functional_call(problem.model, dict(zip(names, pieces, strict=True)), (tokens,))
        out = out if out.shape[-1] == CLASSES else out.transpose(1, 2)
        return out.flatten(0, 1)

    theta = torch.cat([t.reshape(-1) for t in own])
    count = sum(float(loss.weight[y[y >= 0]].sum()) for _, y in batches)
    h, g, f = (torch.zeros(len(theta), len(theta), dtype=torch.float64) for _ in range(3))
    for tokens, y in batches:

        def total(t: Tensor, tokens: Tensor = tokens, y: Tensor = y) -> Tensor:
            return F.cross_entropy(logits(t, tokens), y.flatten(), weight=loss.weight, reduction="sum")

        h += torch.autograd.functional.hessian(total, theta)
        jacobian: Any = torch.autograd.functional.jacobian(lambda t, x=tokens: logits(t, x), theta)
        for row, p, label in zip(jacobian, torch.softmax(logits(theta, tokens), -1), y.flatten(), strict=True):
            if label >= 0:
                w = loss.weight[label]
                slope = (p - F.one_hot(label, CLASSES)) @ row
                g += w * row.T @ (torch.diag(p) - torch.outer(p, p)) @ row
                f += w * torch.outer(slope, slope)
    return h / count, g / count, f / count


def assert_products(problem: hs.Problem) -> None:
    hessian, gauss_newton, empirical = dense(problem)
    expected = [
        (hs.Hessian(problem), hessian),
        (hs.Hessian(problem, method="batched"), hessian),
        (hs.GaussNewton(problem), gauss_newton),
        (hs.Fisher(problem, "exact"), gauss_newton),
        (hs.Fisher(problem, "empirical"), empirical),
        (hs.FunctionalHessian(problem), hessian - gauss_newton),
    ]
    v = torch.randn(len(hessian), 2, dtype=torch.float64, generator=hs.Rng(0).torch())
    for operator, truth in expected:
        gap = float((operator @ v - truth @ v).abs().max())
        assert gap <= 1e-10 * float((hessian @ v).abs().max()), type(operator).__name__


@pytest.mark.parametrize(("name", "memory"), [*((name, "1GB") for name in HEADS), ("own", 0), ("tied", 0)])
def test_products_are_those_of_double_backward(name: str, memory: Any) -> None:
    problem = problem_of(HEADS[name], memory=memory)
    assert output_head.head_of(problem) is not None
    assert_products(problem)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_plain_output_layer_keeps_its_logits(name: str) -> None:
    problem = problem_of(OTHERS[name])
    assert output_head.head_of(problem) is None or name in ("looked at", "run again")
    if name in ("a number that is one", "mixed rows", "looked at", "run again"):
        assert_products(problem)


@pytest.mark.parametrize("params", [["qkv*", "embed*"], "out*"])
def test_some_parameters_only(params: Any) -> None:
    problem = problem_of(HEADS["own"], params=params)
    assert output_head.head_of(problem) is not None
    assert_products(problem)


def test_soft_targets_and_numbers_keep_their_logits() -> None:
    assert output_head.head_of(problem_of(HEADS["own"], loss={"label_smoothing": 0.1})) is None
    tied = problem_of(HEADS["tied"])
    summed = hs.Problem.of(
        tied.model,
        lambda m, b: (F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten(), reduction="sum"), 5),
        tied.batches,
    )
    assert output_head.head_of(summed) is None


def test_drawn_targets_are_the_same_in_every_product() -> None:
    problem = problem_of(HEADS["tied"])
    fisher = hs.Fisher(problem, "mc", samples=3, rng=1)
    v = torch.randn(problem.space.size, dtype=torch.float64, generator=hs.Rng(0).torch())
    assert torch.equal(fisher @ v, fisher @ v)
    mean, truth = hs.Fisher(problem, "mc", samples=300, rng=2) @ v, hs.GaussNewton(problem) @ v
    assert float((mean - truth).norm()) <= 0.25 * float(truth.norm())


def test_no_tensor_of_logits_is_saved() -> None:
    problem = problem_of(HEADS["own"])
    saved: list[torch.Size] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        GradientGraphs(problem).trace(next(iter(problem.batches)))
    assert saved
    assert not [shape for shape in saved if shape[-1:] == (CLASSES,) and shape.numel() > CLASSES * WIDTH]
