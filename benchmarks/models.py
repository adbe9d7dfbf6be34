"""The networks and data of the table of targets."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hesscope import zoo
from hesscope.rng import Rng
from hesscope.zoo import models as networks


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


def wide(count: int = 5000, d: int = 500, m: int = 8, classes: int = 500) -> tuple[nn.Module, Tensor, Tensor]:
    """The network of Dong et al.'s Figures 2-3."""
    generator = Rng(0).child("bench").torch()
    x = torch.randn(count, d, generator=generator)
    y = torch.randint(0, classes, (count,), generator=generator)
    return nn.Sequential(nn.Linear(d, m, bias=False), nn.ReLU(), nn.Linear(m, classes, bias=False)), x, y


def small_cnn(count: int = 256) -> tuple[nn.Module, Tensor, Tensor]:
    """A convolutional network of 4,858 parameters."""
    generator = Rng(0).child("cnn").torch()
    x = torch.randn(count, 1, 16, 16, generator=generator)
    y = torch.randint(0, 10, (count,), generator=generator)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 10),
    )  # fmt: skip
    return model, x, y


def language_head(classes: int = 50_257, tokens: int = 2048, width: int = 768) -> tuple[nn.Module, Tensor, Tensor]:
    """A linear head on random hidden states whose logits follow Zipf's law on average."""
    generator = Rng(0).child("head").torch()
    head = nn.Linear(width, classes, bias=True)
    head.weight.data = torch.randn(classes, width, generator=generator) / width**0.5
    head.bias.data = -torch.arange(1, classes + 1).float().log()
    head.bias.requires_grad_(False)
    x = torch.randn(tokens, width, generator=generator)
    y = torch.multinomial(head.bias.data.exp(), tokens, True, generator=generator)
    return nn.Sequential(head), x, y


def wide_mlp(count: int = 12_000) -> tuple[nn.Module, Tensor, Tensor]:
    """784-512-512-10 at initialisation, as many examples as asked for."""
    data = examples("mnist", count=count)
    x, y = (_repeated(part, count) for part in (data.x.flatten(1), data.y))
    return networks.fully_connected(512, 2, 784, 10, rng=Rng(0)), x, y


def f200(count: int = 10_000) -> tuple[nn.Module, Tensor, Tensor]:
    """F-200² of Wu et al."""
    data = examples("mnist", count=count)
    return networks.fully_connected(200, 2, rng=Rng(0)), data.x, data.y


def lenet5(count: int = 2000) -> tuple[nn.Module, Tensor, Tensor]:
    """LeNet5 of Wu et al."""
    data = examples("cifar10", count=count)
    return networks.lenet5(rng=Rng(0)), data.x, data.y


def _repeated(t: Tensor, count: int) -> Tensor:
    """Stand-in data are fewer than MNIST's; the work per example is the same."""
    return t.repeat(-(-count // len(t)), *[1] * (t.ndim - 1))[:count]


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
