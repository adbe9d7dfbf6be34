"""Small problems with every kind of layer, in float64 and with ragged batches."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from hesscope.curvature import Problem
from hesscope.rng import Rng

N = 37


def data(name: str, inputs: int = 6, classes: int = 4, count: int = N) -> tuple[Tensor, Tensor]:
    """Gaussian inputs with labels ("cross_entropy") or real targets (any other loss)."""
    generator = Rng(3).child(name, inputs, classes).torch()
    x = torch.randn(count, inputs, generator=generator, dtype=torch.float64)
    if name == "cross_entropy":
        return x, torch.randint(0, classes, (count,), generator=generator)
    return x, torch.randn(count, classes, generator=generator, dtype=torch.float64)


def seeded(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in float64 with parameters from a named stream."""
    generator = Rng(seed).child("parameters").torch()
    for p in model.parameters():
        fan_in = p[0].numel() if p.ndim > 1 else 4
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) / fan_in**0.5
    return model.double()


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, bias: bool = False) -> nn.Module:
    """Linear layers of these widths with activations between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b, bias=bias), activation()]
    return seeded(nn.Sequential(*layers[:-1]))


def problem(model: nn.Module, loss: str, inputs: int = 6, classes: int = 4, batch_size: int = 10) -> Problem:
    return Problem.of(model, loss, data(loss, inputs, classes), batch_size=batch_size)


def convolutional() -> Problem:
    generator = Rng(0).child("images").torch()
    x = torch.randn(9, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 4, (9,), generator=generator)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, 4))
    return Problem.of(seeded(net), "cross_entropy", (x, y), batch_size=4)


class Attention(nn.Module):
    """Self-attention with fewer key-value heads than query heads, and a language-model head on top."""

    def __init__(self, dim: int = 8, heads: int = 4, kv_heads: int = 2, vocabulary: int = 11) -> None:
        super().__init__()
        self.n_heads, self.kv = heads, kv_heads
        size = dim // heads
        self.embed = nn.Embedding(vocabulary, dim)
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, kv_heads * size, bias=False)
        self.wv, self.wo = nn.Linear(dim, kv_heads * size, bias=False), nn.Linear(dim, dim, bias=False)
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        b, t, d = x.shape
        q = self.wq(x).view(b, t, self.n_heads, -1).transpose(1, 2)
        k, v = (w(x).view(b, t, self.kv, -1).transpose(1, 2).repeat_interleave(2, 1) for w in (self.wk, self.wv))
        mixed = (q @ k.transpose(2, 3)).softmax(-1) @ v
        return self.head(x + self.wo(mixed.transpose(1, 2).reshape(b, t, d)))


def language(params: str = "*") -> Problem:
    """Next-token prediction with padding that the loss ignores."""
    tokens = torch.randint(0, 11, (5, 7), generator=Rng(1).torch())
    targets = tokens.roll(-1, 1)
    targets[:, -1] = -100
    loss = nn.CrossEntropyLoss(ignore_index=-100)
    return Problem.of(seeded(Attention()), loss, (tokens, targets), params, batch_size=2)
