"""One row per kind of layer: a new kind is a file in `layers/kinds/` and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

TOKENS = 7


@dataclass(frozen=True)
class Row:
    """A network around one layer called `layer`, what it is given, and what is to be found out about it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    kind: str
    parameters: tuple[str, ...] = ("layer.weight", "layer.bias")
    layer: str = "layer"
    multiplies: bool = False
    positions: int = 1
    gauss_newton: bool = True


class Around(nn.Module):
    """The layer, a rectifier, a mean over all but the first axis and the channels, and a fixed map to three logits."""

    def __init__(self, layer: nn.Module, features: int, channels: int = -1, examples: int = 0, smooth: bool = False):
        super().__init__()
        self.layer = layer
        self.channels, self.examples, self.smooth = channels, examples, smooth
        self.register_buffer("head", torch.randn(3, features))

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(x.movedim(0, self.examples))
        z = (z[0] if isinstance(z, tuple) else z).movedim(self.examples, 0).movedim(self.channels, -1)
        z = torch.tanh(z) if self.smooth else torch.relu(z)
        spread = torch.linspace(0.5, 1.5, z[0, ..., 0].numel(), dtype=z.dtype).reshape(z.shape[1:-1])
        return (z * spread[..., None]).flatten(1, -2).sum(1) @ self.head.T if z.ndim > 2 else z @ self.head.T


class InputMajor(nn.Module):
    """x W + b, flattened over tokens, as GPT-2 writes its projections."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class SelfAttention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, **options: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x)[0]
        return out


def vectors(*shape: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randn(count, *shape)


def tokens(length: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randint(0, TOKENS, (count, length))


TABLE = (
    Row("linear", lambda: Around(nn.Linear(5, 4), 4), vectors(5), "linear", multiplies=True),
    Row(
        "linear over tokens", lambda: Around(nn.Linear(5, 4), 4), vectors(3, 5), "linear", multiplies=True, positions=3
    ),
    Row(
        *("linear over time first", lambda: Around(nn.Linear(5, 4), 4, examples=1), vectors(3, 5), "linear"),
        multiplies=True,
        positions=3,
    ),
    Row(
        *("smooth behind it", lambda: Around(nn.Linear(5, 4), 4, smooth=True), vectors(5), "linear"),
        multiplies=True,
        gauss_newton=False,
    ),
    Row(
        *("input-major", lambda: Around(InputMajor(5, 4), 4), vectors(3, 5), "input-major linear"),
        multiplies=True,
        positions=3,
    ),
    Row(
        *("conv1d", lambda: Around(nn.Conv1d(2, 4, 3, stride=2, padding=1), 4, 1), vectors(2, 7), "convolution"),
        multiplies=True,
        positions=4,
    ),
    Row(
        "conv2d",
        lambda: Around(nn.Conv2d(4, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), 4, 1),
        vectors(4, 5, 6),
        "convolution",
        multiplies=True,
        positions=12,
    ),
    Row(
        "conv2d, circular",
        lambda: Around(nn.Conv2d(2, 3, 3, padding="same", padding_mode="circular", bias=False), 3, 1),
        vectors(2, 4, 4),
        "convolution",
        ("layer.weight",),
        multiplies=True,
        positions=16,
    ),
    Row(
        *("conv3d", lambda: Around(nn.Conv3d(1, 2, 2, padding=1, stride=2), 2, 1), vectors(1, 3, 3, 3), "convolution"),
        multiplies=True,
        positions=8,
    ),
    Row(
        *("transposed", lambda: Around(nn.ConvTranspose2d(2, 4, 2, stride=2, groups=2), 4, 1), vectors(2, 3, 3)),
        "transposed convolution",
    ),
    Row("embedding", lambda: Around(nn.Embedding(TOKENS, 4), 4), tokens(5), "embedding", ("layer.weight",)),
    Row(
        "embedding with padding",
        lambda: Around(nn.Embedding(TOKENS, 4, padding_idx=2), 4),
        tokens(5),
        "embedding",
        ("layer.weight",),
    ),
    Row("layer norm", lambda: Around(nn.LayerNorm(4), 4), vectors(3, 4), "normalisation"),
    Row("layer norm over two axes", lambda: Around(nn.LayerNorm((3, 4)), 4), vectors(2, 3, 4), "normalisation"),
    Row("rms norm", lambda: Around(nn.RMSNorm(4), 4), vectors(3, 4), "normalisation", ("layer.weight",)),
    Row("group norm", lambda: Around(nn.GroupNorm(2, 4), 4, 1), vectors(4, 5), "normalisation"),
    Row("batch norm", lambda: Around(nn.BatchNorm2d(4), 4, 1), vectors(4, 3, 3), "normalisation"),
    Row(
        *("attention, packed", lambda: Around(SelfAttention(), 4), vectors(3, 4), "linear"),
        ("layer.attention.in_proj_weight", "layer.attention.in_proj_bias"),
        "layer.attention.in_proj",
        multiplies=True,
        positions=3,
        gauss_newton=False,
    ),
    Row(
        *("attention, output", lambda: Around(SelfAttention(), 4), vectors(3, 4), "linear"),
        ("layer.attention.out_proj.weight", "layer.attention.out_proj.bias"),
        "layer.attention.out_proj",
        multiplies=True,
        positions=3,
    ),
    Row(
        *("attention, separate keys", lambda: Around(KeysApart(), 4), vectors(3, 4), "linear"),
        ("layer.attention.k_proj_weight",),
        "layer.attention.k_proj",
        multiplies=True,
        positions=3,
        gauss_newton=False,
    ),
)


class KeysApart(nn.Module):
    """Attention to keys and values of another size, whose projections are separate parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x[..., :3], x[..., :2])[0]
        return out
