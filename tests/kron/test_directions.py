"""Kronecker factors of transformers from random output directions, against dense Jacobians."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.errors import HesscopeError

LAYERS = ("attention", "out", "up")
TOKENS, CLASSES, WIDTH = 4, 5, 6


class Conv1D(nn.Module):
    """As GPT-2 writes its linear maps: the weight with its inputs first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(0.1 * torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Transformer(nn.Module):
    """One block with packed queries, keys and values, the head tied to the embedding; `shifts` are added to outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CLASSES, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.attention, self.out, self.up = Conv1D(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.down = nn.Linear(8, WIDTH)

    def forward(self, tokens: Tensor, shifts: dict[str, Tensor] | None = None) -> Tensor:
        shifts = shifts or {}
        x = self.embed(tokens)
        packed = self.attention(self.norm(x)) + shifts.get("attention", 0)
        q, k, v = packed.view(*tokens.shape, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT).masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), float("-inf"))
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.out(mixed) + shifts.get("out", 0)
        x = x + self.down(F.gelu(self.up(x) + shifts.get("up", 0)))
        x = x + 0.3 * torch.tanh(x).cumsum(1)  # so that positions interact behind every layer
        return F.linear(self.norm(x), self.embed.weight)


@cache
def case() -> tuple[hs.Problem, Transformer, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Transformer().double()
        tokens = torch.randint(0, CLASSES, (4, TOKENS))
    labels = tokens.roll(-1, 1)
    labels[0, 1] = -100
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (tokens, labels))
    return problem, model, tokens


def dense_factor(model: Transformer, tokens: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """(E[(1/P) Σ_p M_pp], E[(1/P) Σ_ts M_ts]) of the Gauss-Newton matrix, from Jacobians by torch.func."""
    outputs = {"attention": 3 * WIDTH, "out": WIDTH, "up": 8}[layer]
    expanded, reduced = torch.zeros(2, outputs, outputs, dtype=torch.float64)
    for number, row in enumerate(tokens):
        zero = torch.zeros(TOKENS, outputs, dtype=torch.float64)
        jacobian = torch.func.jacrev(lambda s, r=row: model(r[None], {layer: s})[0])(zero)  # (T, C, T, m)
        p = torch.softmax(model(row[None])[0], -1)
        counted = [t for t in range(TOKENS) if (number, t) != (0, 1)]
        whole = sum(
            torch.einsum("cpm,cd,dqk->pmqk", jacobian[t], torch.diag(p[t]) - torch.outer(p[t], p[t]), jacobian[t])
            for t in counted
        )
        assert isinstance(whole, Tensor)
        expanded += torch.einsum("pmpk->mk", whole).detach() / TOKENS
        reduced += whole.sum((0, 2)).detach() / TOKENS
    rows = 4 * TOKENS - 1
    return expanded / rows, reduced / rows


@pytest.mark.parametrize("layer", LAYERS)
def test_every_direction_gives_the_factor_of_the_dense_matrix(layer: str) -> None:
    problem, model, tokens = case()
    found = hs.decouple(problem, layer, curvature="gauss_newton", directions="all")
    for reduction, truth in zip(("expand", "reduce"), dense_factor(model, tokens, layer), strict=True):
        ours = found.with_reduction(reduction).output_hessian
        assert float((ours - truth).abs().max()) <= 1e-10 * float(truth.abs().max())
    assert found.output_hessian_stderr == 0.0


@pytest.mark.parametrize(("reduction", "count"), [("expand", 6), ("reduce", 3)])
def test_random_directions_are_unbiased_and_know_their_error(reduction: str, count: int) -> None:
    problem, model, tokens = case()
    truth = dict(zip(("expand", "reduce"), dense_factor(model, tokens, "attention"), strict=True))[reduction]
    draws = [
        hs.decouple(problem, "attention", reduction=reduction, curvature="gauss_newton", directions=count, rng=seed)
        for seed in range(40)
    ]
    gaps = torch.tensor([float((d.output_hessian - truth).norm()) for d in draws])
    told = torch.tensor([d.output_hessian_stderr for d in draws])
    # The mean of 40 is √40 closer than one, and the errors told are of the size of the true ones.
    mean = torch.stack([d.output_hessian for d in draws]).mean(0)
    typical = float(gaps.square().mean().sqrt())
    assert float((mean - truth).norm()) <= 2 * typical / 40**0.5
    assert 0.75 <= float(told.square().mean().sqrt()) / typical <= 1.3


@pytest.mark.parametrize("layer", LAYERS)
def test_products_without_factors_are_those_of_the_gauss_newton_matrix(layer: str) -> None:
    problem, model, tokens = case()
    op = hs.layer_hessian(problem, layer, directions=2)
    assert op.curvature == "Gauss-Newton factors from 2 random directions, an approximation here"
    weight = getattr(model, layer).weight.detach()
    others = {name: t.detach() for name, t in model.named_parameters()}

    def logits(w: Tensor) -> Tensor:
        state = {**others, f"{layer}.weight": w.T if layer == "attention" else w}
        out = torch.func.functional_call(model, state, (tokens,)).flatten(0, 1)
        return out[torch.arange(len(out)) != 1]

    matrix = weight.T.contiguous() if layer == "attention" else weight
    jacobian = torch.func.jacrev(logits)(matrix).flatten(2).detach()
    p = torch.softmax(logits(matrix), -1)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    truth = torch.einsum("rcn,rcd,rdk->nk", jacobian, curvature, jacobian) / len(p)
    assert float((op.dense() - truth).abs().max()) <= 1e-10 * float(truth.abs().max())


def test_auto_takes_directions_only_where_exact_factors_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    from hesscope.kron import directions

    problem, _, _ = case()
    assert hs.decouple(problem, "attention").curvature == "second derivative, exact"
    monkeypatch.setattr(directions, "_MOST_FLOPS", 1.0)
    assert "16 random directions, an approximation" in hs.decouple(problem, "attention").curvature
    exact = hs.decouple(problem, "attention", curvature="second_derivative")
    assert exact.curvature == "second derivative, exact"


def test_what_directions_only_estimate_is_refused() -> None:
    problem, _, _ = case()
    found = hs.decouple(problem, "up", directions=4)
    assert found.compare(2).frobenius_stderr > 0
    with pytest.raises(HesscopeError, match="needs every output direction"):
        found.nearest()
