"""Block norms of Gauss-Newton matrices of transformers, from random gradients that all blocks share."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hesscope as hs
from hesscope.curvature.losses import softmax
from hesscope.errors import InputError
from hesscope.structure import norm_products
from hesscope.structure import norms as norms_module
from hesscope.structure.sampled import shared_norms
from hesscope.structure.sampled.shared_draws import random_gradients
from hesscope.structure.sampled.shared_norms import SharedNorms
from hesscope.structure.source import source_of


class Transformer(nn.Module):
    """One head of attention, one hidden layer, the output tied to the embedding."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, width), nn.Parameter(torch.randn(4, width))
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        later = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
        x = x + torch.softmax((q @ k.mT).masked_fill(later, float("-inf")), -1) @ v
        x = x + self.down(F.gelu(self.up(x)))
        return x @ self.embed.weight.T


@cache
def language(tokens: int, width: int, shape: tuple[int, int]) -> tuple[hs.Problem, Tensor]:
    """A problem and its dense Gauss-Newton matrix, from Jacobians by torch.func."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Transformer(tokens, width).double()
        data = torch.randint(0, tokens, shape)
    labels = data.roll(-1, 1)
    labels[0, 0] = -100 if shape[0] > 1 else labels[0, 0]
    problem = hs.Problem.of(model, nn.CrossEntropyLoss(), (data, labels))
    names = [name for name, _ in model.named_parameters()]

    def logits(*values: Tensor) -> Tensor:
        out = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (data,)).flatten(0, 1)
        return out[labels.flatten() != -100]

    own = tuple(p.detach() for p in model.parameters())
    found: Any = torch.func.jacrev(logits, argnums=tuple(range(len(own))))(*own)
    jacobian = torch.cat([j.flatten(2) for j in found], -1).detach()
    p = torch.softmax(logits(*own), -1)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    return problem, torch.einsum("rcn,rcd,rdk->nk", jacobian, curvature, jacobian) / len(p)


def norms_of(matrix: Tensor, partition: hs.Partition) -> Any:
    member = F.one_hot(partition.labels, partition.count).double()
    return (member.T @ matrix.square() @ member).sqrt().numpy()


def test_the_second_moment_over_all_signs_is_the_dense_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, truth = language(3, 2, (1, 2))
    patterns = iter(torch.tensor(signs).view(2, 3) for signs in product((-1.0, 1.0), repeat=6))
    monkeypatch.setattr(softmax, "random_signs", lambda shape, generator, like: next(patterns).to(like))
    everything = torch.arange(problem.space.size)
    found = random_gradients(problem, 64, 1, everything, hs.Rng(0))[:, 0] * problem.scale**0.5
    ours = found.T @ found / 64
    assert float((ours - truth).abs().max()) <= 1e-10 * float(truth.abs().max())


@pytest.mark.parametrize("kind", ["layer", "neuron"])
def test_estimates_cover_the_truth_and_their_errors_are_calibrated(kind: Any) -> None:
    problem, matrix = language(5, 4, (12, 4))
    partition = hs.Partition.by(kind, problem)
    exact = norms_of(matrix, partition)
    scores = []
    for seed in range(6):
        found = hs.block_norms(hs.GaussNewton(problem), partition, method="shared", rng=seed)
        assert not found.exact
        assert found.products == 16
        clear = np.triu(exact > 0.3 * np.sqrt(np.outer(np.diag(exact), np.diag(exact))))
        scores.append((found.norms[clear] - exact[clear]) / found.stderr[clear])
    z = np.concatenate(scores)
    assert np.abs(z).max() <= 5.5
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.25  # blocks of one draw are correlated


def test_squares_are_means_over_pairs_of_independent_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw s estimates G by M_s = Σ_parts g gᵀ; <M_s, M_t> over blocks and s ≠ t, and the same without one draw."""
    problem, _ = language(5, 4, (12, 4))
    labels = torch.arange(problem.space.size) % 5
    partition = hs.Partition(labels, tuple("abcde"), tuple("abcde"))
    drawn = torch.randn(4, 3, problem.space.size, dtype=torch.float64, generator=hs.Rng(0).torch())
    monkeypatch.setattr(shared_norms, "random_gradients", lambda p, draws, parts, order, rng: drawn[..., order])
    found, variance = SharedNorms(source_of(hs.GaussNewton(problem)), partition, 4, hs.Rng(0)).squares()
    member = F.one_hot(labels, 5).double()
    single = [torch.einsum("cn,cm->nm", g, g) * problem.scale for g in drawn]
    pairs = {(s, t): member.T @ (single[s] * single[t]) @ member for s in range(4) for t in range(s)}
    mean = torch.stack(list(pairs.values())).mean(0)
    without = [torch.stack([pair for who, pair in pairs.items() if s not in who]).mean(0) for s in range(4)]
    spread = torch.stack([(one - mean).square() for one in without]).sum(0) * 3 / 4
    spread *= (
        3.3068 / 2
    ) ** 2  # Student's quantile at 97.725 % with three degrees of freedom, where two would be normal
    torch.testing.assert_close(found, mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(variance, spread, rtol=1e-4, atol=0)


def test_auto_shares_where_probes_would_be_many(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = language(5, 4, (12, 4))
    operator = hs.GaussNewton(problem)
    assert hs.block_norms(operator, "layer").exact
    monkeypatch.setattr(norms_module, "_EXACT_COLUMNS", 3)
    monkeypatch.setattr(norms_module, "_MOST_PROBES", 10)
    with pytest.warns(UserWarning, match="16 probes that all blocks share"):
        found = hs.block_norms(operator, "layer")
    assert found.products == norm_products(operator, "layer") == 16
    assert found.method == "16 random gradients, shared by all blocks"
    with pytest.warns(UserWarning, match="probes per block"):
        assert hs.block_norms(problem, "layer").products == np.minimum(found.sizes, 16).sum()


def test_what_cannot_be_shared_is_refused() -> None:
    problem, _ = language(5, 4, (12, 4))
    with pytest.raises(InputError, match="blocks of a Gauss-Newton matrix"):
        hs.block_norms(problem, "layer", method="shared")
    with pytest.raises(InputError, match="probes must be an integer >= 4"):
        hs.block_norms(hs.GaussNewton(problem), "layer", method="shared", probes=3)
