"""The networks and data of the table of targets."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hesscope import zoo


def examples(name: str, count: int) -> zoo.Examples:
    """Real data where they are; for timing, synthetic ones of the same shape do."""
    allowing = getattr(zoo, "stand_ins", nullcontext)  # an earlier version to compare with may take them unasked
    with allowing():
        return zoo.load(name, count=count)


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    """784-512-512-10, batch 1024, lightly trained."""
    torch.manual_seed(0)
    data = examples("mnist", count=1024)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return trained(model, data.x.flatten(1), data.y), data.x.flatten(1), data.y


def lenet() -> tuple[nn.Module, Tensor, Tensor]:
    """LeNet5 on 3x32x32, 1024 examples, lightly trained."""
    torch.manual_seed(0)
    data = examples("cifar10", count=1024)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    return trained(model, data.x, data.y), data.x, data.y


def small_mlp() -> tuple[nn.Module, Tensor, Tensor]:
    """64-32-10 on the digits: small enough for its exact spectrum."""
    torch.manual_seed(0)
    data = examples("digits", count=1024)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return trained(model, data.x.flatten(1), data.y), data.x.flatten(1), data.y


def trained(model: nn.Module, x: Tensor, y: Tensor, steps: int = 60) -> nn.Module:
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        part = slice((step * 128) % len(x), (step * 128) % len(x) + 128)
        optimiser.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
        optimiser.step()
    return model.eval().requires_grad_(True)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """4 layers, width 256, vocabulary 8192; logits with the classes second, as torch's loss and every peer wants."""

    def __init__(
        self, vocabulary: int = 8192, width: int = 256, layers: int = 4, heads: int = 4, length: int = 128
    ) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


def gpt() -> tuple[nn.Module, Tensor, Tensor]:
    """4 x 128 tokens."""
    torch.manual_seed(0)
    return GPT(), torch.randint(0, 8192, (4, 128)), torch.randint(0, 8192, (4, 128))


class TiedGPT(GPT):
    """A head that is the embedding, as GPT-2 has it."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int = 1024) -> None:
        super().__init__(vocabulary, width, layers, heads, length)
        self.head.weight = self.embed.weight


# Vocabulary, width, layers, heads.
TIED = {"1.25 M": (4096, 128, 3, 4), "10.3 M": (8192, 320, 6, 5), "124 M": (50257, 768, 12, 12)}


def tied_gpt(size: str, sequences: int = 1) -> tuple[nn.Module, Tensor, Tensor]:
    """A GPT of so many parameters at sequences of 1,024 random tokens."""
    torch.manual_seed(0)
    vocabulary = TIED[size][0]
    x, y = torch.randint(0, vocabulary, (2, sequences, 1024))
    return TiedGPT(*TIED[size]), x, y
