"""What stands in front of the pieces: images, tokens and sequences, brought to `(B, d)` or `(B, T, d)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fuzz.pieces import Lambda, activation


@dataclass(frozen=True)
class Front:
    """A module, the shape of its inputs for n examples, the features it gives and what it needs."""

    module: nn.Module
    shape: Callable[[int], tuple[int, ...]]
    features: int
    tokens: int = 0  # inputs are tokens below this number
    time: int = 0  # outputs are (B, time, features)
    interacts: bool = False
    needs_eval: bool = False
    time_first: bool = False  # the first axis of the inputs is not the batch


FRONTS: dict[str, Callable[[Random], Front]] = {}


def front(make: Callable[[Random], Front]) -> Callable[[Random], Front]:
    """Register the function under its own name."""
    FRONTS[make.__name__] = make
    return make


@front
def vectors(r: Random) -> Front:
    d = r.choice([2, 3, 4])
    return Front(nn.Identity(), lambda n: (n, d), d)


@front
def vectors_in_time(r: Random) -> Front:
    d, t = r.choice([2, 3]), r.choice([2, 3])
    return Front(nn.Identity(), lambda n: (n, t, d), d, time=t)


def _convolution(r: Random, dims: int, transposed: bool, into: int, out: int, groups: int) -> nn.Module:
    kinds: dict[tuple[int, bool], Any] = {
        (1, False): nn.Conv1d,
        (2, False): nn.Conv2d,
        (3, False): nn.Conv3d,
        (1, True): nn.ConvTranspose1d,
        (2, True): nn.ConvTranspose2d,
        (3, True): nn.ConvTranspose3d,
    }
    settings: dict[str, Any] = {
        "kernel_size": 2 if dims == 3 else r.choice([2, 3]),
        "stride": r.choice([1, 1, 2]),
        "padding": r.choice([0, 1]),
        "dilation": r.choice([1, 1, 2]) if dims < 3 else 1,
        "groups": groups,
        "bias": r.random() < 0.7,
    }
    if not transposed:
        settings["padding_mode"] = r.choice(["zeros", "zeros", "reflect", "circular", "replicate"])
        if settings["padding_mode"] == "zeros" and settings["stride"] == 1 and r.random() < 0.3:
            settings["padding"] = r.choice(["same", "valid"])
    return kinds[dims, transposed](into, out, **settings)


def _images(r: Random, dims: int, transposed: bool) -> Front:
    groups = r.choice([1, 1, 2])
    into, out, side = 1 * groups, 2, {1: 6, 2: 5, 3: 4}[dims]
    layers: list[nn.Module] = [_convolution(r, dims, transposed, into, out, groups)]
    norm = r.choice(["batch", "batch", "none", "instance", "group"])
    batch_norms: list[Any] = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]
    instance_norms: list[Any] = [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d]
    if norm == "batch":
        layers.append(batch_norms[dims - 1](out))
    elif norm == "instance":
        layers.append(instance_norms[dims - 1](out, eps=0.1, affine=r.random() < 0.6))
    elif norm == "group":
        layers.append(nn.GroupNorm(r.choice([1, 2]), out, eps=0.1))
    acts: list[Callable[[], nn.Module]] = [lambda: nn.SiLU(True), nn.GELU, lambda: nn.ReLU(True), nn.Tanh]
    layers.append(r.choice(acts)())
    if r.random() < 0.3:
        layers.append([nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1](out, out, 1))
    pools: list[Any] = [nn.AdaptiveAvgPool1d(1), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool3d(1)]
    largest: list[Any] = [nn.AdaptiveMaxPool1d(1), nn.AdaptiveMaxPool2d(1), nn.AdaptiveMaxPool3d(1)]
    layers += [r.choice([pools, largest])[dims - 1], nn.Flatten()]
    return Front(nn.Sequential(*layers), lambda n: (n, into, *[side] * dims), out, needs_eval=norm == "batch")


@front
def conv1d(r: Random) -> Front:
    return _images(r, 1, False)


@front
def conv2d(r: Random) -> Front:
    return _images(r, 2, False)


@front
def conv2d_again(r: Random) -> Front:
    return _images(r, 2, False)


@front
def conv3d(r: Random) -> Front:
    return _images(r, 3, False)


@front
def transposed_convolution(r: Random) -> Front:
    return _images(r, r.choice([1, 2]), True)


class Embedded(nn.Module):
    """Tokens to vectors, and a mixer over time."""

    def __init__(self, embedding: nn.Embedding, mixer: nn.Module) -> None:
        super().__init__()
        self.embedding, self.mixer = embedding, mixer

    def forward(self, tokens: Tensor) -> Tensor:
        return self.mixer(self.embedding(tokens))


class Attention(nn.Module):
    """Self-attention with a residual."""

    def __init__(self, d: int, heads: int, causal: bool, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=batch_first)
        self.causal, self.axis = causal, 1 if batch_first else 0

    def forward(self, x: Tensor) -> Tensor:
        mask = None
        if self.causal:
            size = x.shape[self.axis]
            mask = torch.ones(size, size, dtype=torch.bool).triu(1)
        return x + self.attention(x, x, x, need_weights=False, attn_mask=mask)[0]


class ByHand(nn.Module):
    """Scaled dot products through torch's own function."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.qk, self.v = nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.qk(x).chunk(2, -1)
        return F.scaled_dot_product_attention(q, k, self.v(x), is_causal=True)


class Recurrent(nn.Module):
    """The outputs of an LSTM, a GRU or an RNN."""

    def __init__(self, kind: str, d: int, m: int, batch_first: bool) -> None:
        super().__init__()
        kinds: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
        self.cell = kinds[kind](d, m, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x)[0]


def _embedding(r: Random, vocabulary: int, d: int, hard: bool) -> nn.Embedding:
    settings: dict[str, Any] = {}
    if r.random() < 0.4:
        settings["padding_idx"] = r.randrange(vocabulary)
    if hard:
        settings.update(r.choice([{"scale_grad_by_freq": True}, {"max_norm": 1.0}, {"max_norm": 100.0}]))
    return nn.Embedding(vocabulary, d, **settings)


def _tokens(r: Random, mixer: Callable[[int], tuple[nn.Module, int]], hard: bool = False) -> Front:
    vocabulary, d, time = r.choice([3, 4]), r.choice([2, 3]), r.choice([2, 3])
    mix, out = mixer(d)
    needs = any(isinstance(part, nn.TransformerEncoderLayer) for part in mix.modules())
    module = Embedded(_embedding(r, vocabulary, d, hard), mix)
    return Front(module, lambda n: (n, time), out, tokens=vocabulary, time=time, needs_eval=needs)


@front
def tokens(r: Random) -> Front:
    return _tokens(r, lambda d: (activation(r, smooth=True), d))


@front
def tokens_hard(r: Random) -> Front:
    return _tokens(r, lambda d: (nn.Identity(), d), hard=True)


@front
def tokens_cumsum(r: Random) -> Front:
    return _tokens(r, lambda d: (Lambda(lambda x: torch.tanh(x.cumsum(1))), d))


@front
def tokens_attention(r: Random) -> Front:
    return _tokens(r, lambda d: (Attention(d, r.choice([1, d]), r.random() < 0.5), d))


@front
def tokens_dot_product(r: Random) -> Front:
    return _tokens(r, lambda d: (ByHand(d), d))


@front
def tokens_transformer(r: Random) -> Front:
    def layer(d: int) -> tuple[nn.Module, int]:
        first, act = r.random() < 0.5, r.choice(["relu", "gelu"])
        return nn.TransformerEncoderLayer(d, 1, 2, 0.1, act, layer_norm_eps=0.1, batch_first=True, norm_first=first), d

    return _tokens(r, layer)


@front
def tokens_recurrent(r: Random) -> Front:
    return _tokens(r, lambda d: (Recurrent(r.choice(["lstm", "gru"]), d, 2, True), 2))


def _time_first(r: Random, module: nn.Module, d: int, out: int, time: int, square: bool) -> Front:
    last = Lambda(lambda h: h[-1], module) if r.random() < 0.6 else Lambda(lambda h: h.mean(0), module)
    return Front(last, lambda n: (n if square else time, n, d), out, time_first=True)


@front
def time_first_recurrent(r: Random) -> Front:
    d, kind = r.choice([2, 3]), r.choice(["lstm", "gru", "rnn"])
    return _time_first(r, Recurrent(kind, d, 2, False), d, 2, r.choice([2, 3]), r.random() < 0.5)


@front
def time_first_cumsum(r: Random) -> Front:
    d = r.choice([2, 3])
    module = nn.Sequential(nn.Linear(d, 3), Lambda(lambda x: torch.tanh(x.cumsum(0))))
    return _time_first(r, module, d, 3, r.choice([2, 3]), r.random() < 0.5)


@front
def time_first_attention(r: Random) -> Front:
    d = r.choice([2, 3])
    return _time_first(r, Attention(d, 1, False, batch_first=False), d, d, r.choice([2, 3]), r.random() < 0.5)
