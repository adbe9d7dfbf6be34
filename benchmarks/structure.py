"""Block structure against the row-at-a-time way (a kept graph, one backward pass per row) and the peers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hesscope.curvature import Problem
from hesscope.structure import block_norms, dense_hessian, output_block_norms

from . import models

SAMPLED_ROWS = 24
KEPT_ROWS = f"rows through a kept graph, {SAMPLED_ROWS} sampled"


class Row(NamedTuple):
    """One comparison; `target` is the ratio to reach, NaN where there is no other to compare with."""

    name: str
    seconds: float
    other: str
    other_seconds: float
    ratio: float
    target: float


def rows(quick: bool = False) -> list[Row]:
    """All comparisons; `quick` divides the sizes by ten, to see that everything runs."""
    return [*paper_network(quick), *small_cnn(quick), *vocabulary(quick)]


def paper_network(quick: bool = False) -> list[Row]:
    """d = C = 500, m = 8, N = 5000 (Figures 2-3): the dense Hessian, and all block norms layer by layer."""
    d, m, classes, count = (50, 8, 50, 500) if quick else (500, 8, 500, 5000)
    model, x, y = models.wide(count, d, m, classes)
    onehot = nn.functional.one_hot(y, classes).float()
    out = []
    for name, target, loss in (
        ("cross_entropy", y, lambda f: nn.functional.cross_entropy(f, y)),
        ("squared_error", onehot, lambda f: (f - onehot).square().sum(-1).mean()),
    ):
        problem = Problem.of(model, name, (x, target), batch_size=count)
        weights = list(model.parameters())
        size = sum(w.numel() for w in weights)
        by_rows = _row_loop(lambda loss=loss: loss(model(x)), weights) * size
        ours = _best(lambda problem=problem: dense_hessian(problem))
        out.append(_row(f"dense {size} x {size}, {name}", ours, KEPT_ROWS, by_rows, 200))
        matmuls = _same_flops(count, d, m, classes, name)
        out.append(_row(f"dense {size} x {size}, {name}", ours, "the same flops as matrix products", matmuls, 1 / 3))
        layer_rows = sum(_row_loop(lambda loss=loss: loss(model(x)), [w]) * w.numel() for w in weights)
        parts = [problem.select("0.*"), problem.select("2.*")]
        ours = _best(lambda parts=parts: [block_norms(part) for part in parts])
        out.append(
            _row(
                f"block norms, hidden and output, {name}", ours, f"layer rows, {SAMPLED_ROWS} sampled", layer_rows, 400
            )
        )
    return out


def _same_flops(n: int, d: int, m: int, classes: int, loss: str) -> float:
    """Seconds of plain products with the arithmetic of the three blocks: X diag X^T per pair, and X^T Y for H_wv."""
    x, wide = torch.randn(d, n), torch.randn(n, m * classes)
    square = _best(lambda: x @ x.T)
    if loss == "squared_error":
        return m * (m + 1) / 2 * square + m * _best(lambda: x @ wide[:, :classes])
    p = torch.randn(n, classes)
    return m * (m + 1) / 2 * (square + _best(lambda: p.T @ p)) + m * _best(lambda: x @ wide)


def small_cnn(quick: bool = False) -> list[Row]:
    """A 5,000-parameter convolutional network: kept-graph rows, batched rows by torch.func, and curvlinops."""
    model, x, y = models.small_cnn(16 if quick else 256)
    weights = list(model.parameters())
    size = sum(w.numel() for w in weights)
    problem = Problem.of(model, "cross_entropy", (x, y))
    ours = _best(lambda: dense_hessian(problem))
    name = f"dense Hessian of a CNN, {size} parameters"
    loop = _row_loop(lambda: nn.functional.cross_entropy(model(x), y), weights) * size
    others = [(KEPT_ROWS, loop), *_peers(model, x, y, size)]
    return [_row(name, ours, other, seconds, 2.0) for other, seconds in others]


def _peers(model: nn.Module, x: Tensor, y: Tensor, size: int) -> list[tuple[str, float]]:
    """Seconds of each peer that is installed, from a sample of columns."""
    names = [name for name, _ in model.named_parameters()]
    values = [p.detach() for _, p in model.named_parameters()]
    sizes = [v.numel() for v in values]

    def loss(flat: Tensor) -> Tensor:
        parts = [p.view_as(v) for p, v in zip(flat.split(sizes), values, strict=True)]
        outputs = torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (x,))
        return nn.functional.cross_entropy(outputs, y)

    flat = torch.cat([v.reshape(-1) for v in values])
    few = torch.eye(size)[:16]

    def columns() -> Tensor:
        return torch.func.vmap(lambda v: torch.func.jvp(torch.func.grad(loss), (flat,), (v,))[1])(few)

    found = [("torch.func, vmap of 16 columns", _best(columns) * size / 16)]
    try:
        from curvlinops import HessianLinearOperator
    except ImportError:
        return found
    operator = HessianLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), [(x, y)])
    block = few.T.contiguous()
    return [*found, ("curvlinops, 16 columns", _best(lambda: operator @ block) * size / 16)]


def vocabulary(quick: bool = False) -> list[Row]:
    """The head of a GPT-2-sized vocabulary, with token frequencies as in text (Zipf): no other tool can do this."""
    classes, tokens, width = (2000, 256, 64) if quick else (50_257, 2048, 768)
    model, x, y = models.language_head(classes, tokens, width)
    problem = Problem.of(model, "cross_entropy", (x, y), batch_size=512)
    began = time.perf_counter()
    output_block_norms(problem, sampled=10_000 if not quick else 100)
    seconds = time.perf_counter() - began
    nan = float("nan")
    return [Row(f"head of {classes} tokens, {tokens} positions, all diagonal blocks", seconds, "none", nan, nan, nan)]


def _row_loop(loss: Callable[[], Tensor], weights: list[nn.Parameter]) -> float:
    """Seconds per row of the authors' way, from evenly spread rows."""
    gradient = torch.autograd.grad(loss(), weights, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradient])
    places = torch.linspace(0, len(flat) - 1, SAMPLED_ROWS).long().tolist()
    torch.autograd.grad(flat[0], weights, retain_graph=True)
    began = time.perf_counter()
    for place in places:
        torch.autograd.grad(flat[place], weights, retain_graph=True)
    return (time.perf_counter() - began) / SAMPLED_ROWS


def _best(work: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _row(name: str, ours: float, other: str, seconds: float, target: float) -> Row:
    return Row(name, ours, other, seconds, seconds / ours, target)
