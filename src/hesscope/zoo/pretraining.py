"""A GPT in the manner of nanoGPT and its twin without attention, pre-trained on windows of a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..rng import Rng
from .training import descend, drawn_batches


class Attention(nn.Module):
    """Causal self-attention without biases: 4 width² parameters."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        moved: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return moved


class FeedForward(nn.Module):
    """Two matrices around GELU without biases: 2 · width · hidden parameters."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.out = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        moved: Tensor = self.out(F.gelu(self.up(x)))
        return moved


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, attention: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        # Hidden width 2 · width has exactly the 4 · width² parameters of attention.
        self.mix = Attention(width, heads) if attention else FeedForward(width, 2 * width)
        self.feed = FeedForward(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm1(x))
        moved: Tensor = x + self.feed(self.norm2(x))
        return moved


class NanoGPT(nn.Module):
    """Pre-norm decoder without biases, head tied to the embedding, nanoGPT's initialisation.

    `attention=False` is the twin: a feed-forward block of as many parameters in the place of every attention layer.

    >>> sizes = [sum(p.numel() for p in NanoGPT(11, 8, 2, 3, 4, attention=kind).parameters()) for kind in (True, False)]
    >>> sizes[0] == sizes[1]
    True
    """

    def __init__(
        self, vocabulary: int, width: int, heads: int, layers: int, length: int, *, attention: bool = True
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.empty(length, width))
        self.blocks = nn.ModuleList([_Block(width, heads, attention) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                last = name.endswith("out.weight")  # what a block adds to the stream, of which there are 2 · layers
                nn.init.normal_(parameter, std=0.02 / ((2 * layers) ** 0.5 if last else 1.0))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)


@dataclass(frozen=True)
class Pretraining:
    """AdamW (0.9, 0.95; decay 0.1 on matrices), a linear rise over `rising` steps, then a cosine to a tenth of `rate`."""

    steps: int
    batch: int
    rate: float
    rising: int

    def run(self, model: nn.Module, tokens: Tensor, length: int, watch: Callable[[int], None], rng: Rng) -> None:
        """Steps on windows of `length` that begin anywhere in the text; `watch(t)` after t of them."""
        matrices = [p for p in model.parameters() if p.ndim > 1]
        vectors = [p for p in model.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=(0.9, 0.95))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._factor)

        def loss(starts: Tensor) -> Tensor:
            x, y = windows(tokens, starts, length)
            return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

        drawn = drawn_batches(len(tokens) - length, self.batch, self.steps, rng.torch())
        descend(optimizer, drawn, loss, schedule=schedule, watch=watch)

    def _factor(self, step: int) -> float:
        if step < self.rising:
            return (step + 1) / self.rising
        share = (step - self.rising) / max(1, self.steps - self.rising)
        return 0.1 + 0.45 * (1 + cos(pi * min(1.0, share)))


def windows(tokens: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Inputs and the tokens that follow them."""
    places = starts[:, None] + torch.arange(length + 1)
    rows = tokens[places]
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
