"""A trained transformer: stories260K from the data folder, or a small one trained here on synthetic text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...curvature import Problem
from ...missing_data import note_stand_in
from ...rng import Rng
from ...zoo.data import data_dir
from ...zoo.gpt import SmallGPT
from ...zoo.models import initialised_by
from ...zoo.training import descend, drawn_batches

WEIGHTS, TOKENS = "stories260K.bin", "tinystories_tok512.npz"


@dataclass(frozen=True)
class Language:
    """A model at its trained and at random parameters, its text, and the names of its parts."""

    trained: Problem
    random: Problem
    attention: tuple[str, ...]  # globs of the attention projections, by layer
    feed: tuple[str, ...]  # globs of the first feed-forward matrix, by layer
    head: str
    synthetic: bool


def language(folder: str | None, sequences: int, length: int, rng: Rng) -> Language:
    """stories260K, or where one was asked for the stand-in."""
    where = data_dir(folder)
    if where is None or not all((where / name).exists() for name in (WEIGHTS, TOKENS)):
        note_stand_in("the language model stories260K", (WEIGHTS, TOKENS), where)
        return _stand_in(sequences, length, rng)
    model = read_stories(where / WEIGHTS)
    with np.load(where / TOKENS, allow_pickle=False) as file:
        tokens, offsets = file["tokens"].astype(np.int64), file["offsets"]
    long = np.flatnonzero(np.diff(offsets) > length)[:sequences]
    x = torch.from_numpy(np.stack([tokens[offsets[k] : offsets[k] + length + 1] for k in long]))
    layers = range(len(model.blocks))
    return Language(
        _problem(model, x),
        _problem(_shuffled(model, rng), x),
        tuple(f"blocks.{k}.w[qkvo].weight" for k in layers),
        tuple(f"blocks.{k}.w1.weight" for k in layers),
        "head",
        False,
    )


def _problem(model: nn.Module, tokens: Tensor) -> Problem:
    return Problem.of(model, "cross_entropy", (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))


def _shuffled(model: Stories, rng: Rng) -> Stories:
    """The same network with the entries of each matrix redrawn from a Gaussian of the same mean square."""
    fresh = Stories(*model.sizes)
    state = {}
    for name, value in model.state_dict().items():
        drawn = torch.randn(value.shape, generator=rng.child(name).torch())
        state[name] = value.clone() if value.ndim < 2 else drawn * value.square().mean().sqrt()
    fresh.load_state_dict(state)
    return fresh


class _StoriesBlock(nn.Module):
    def __init__(self, dim: int, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, size = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = nn.RMSNorm(dim, 1e-5), nn.RMSNorm(dim, 1e-5)
        self.wq, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = (nn.Linear(dim, kv_heads * size, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        batch, length, dim = x.shape
        h = self.norm1(x)
        q = _rotate(self.wq(h).view(batch, length, self.n_heads, -1), turn).transpose(1, 2)
        k = _rotate(self.wk(h).view(batch, length, self.kv_heads, -1), turn).transpose(1, 2)
        v = self.wv(h).view(batch, length, self.kv_heads, -1).transpose(1, 2)
        share = self.n_heads // self.kv_heads
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).reshape(batch, length, dim))
        h = self.norm2(x)
        change: Tensor = self.w2(F.silu(self.w1(h)) * self.w3(h))
        return x + change


class Stories(nn.Module):
    """A Llama-2 decoder (rotary positions, RMSNorm, gated feed-forward); the head is untied, so that its role is clear."""

    def __init__(self, dim: int, hidden: int, layers: int, heads: int, kv_heads: int, vocabulary: int) -> None:
        super().__init__()
        self.sizes = (dim, hidden, layers, heads, kv_heads, vocabulary)
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList([_StoriesBlock(dim, hidden, heads, kv_heads) for _ in range(layers)])
        self.norm = nn.RMSNorm(dim, 1e-5)
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        size = self.sizes[0] // self.sizes[3]
        rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
        turn = torch.arange(tokens.shape[1], dtype=x.dtype)[:, None] * rates
        for block in self.blocks:
            x = block(x, turn)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _rotate(x: Tensor, turn: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    cos, sin = turn.cos()[:, None], turn.sin()[:, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def read_stories(path: Path) -> Stories:
    """The weights in llama2.c's first format: seven integers, then float32 arrays stacked over layers."""
    raw = path.read_bytes()
    dim, hidden, layers, heads, kv_heads, vocabulary, _ = (int(k) for k in np.frombuffer(raw, "<i4", 7))
    numbers = torch.from_numpy(np.frombuffer(raw, "<f4", offset=28).copy())
    model = Stories(dim, hidden, layers, heads, kv_heads, vocabulary)
    place = 0

    def take(*shape: int) -> Tensor:
        nonlocal place
        count = int(np.prod(shape))
        place += count
        return numbers[place - count : place].view(shape)

    state: dict[str, Any] = {"embed.weight": take(vocabulary, dim)}
    state["head.weight"] = state["embed.weight"]
    kv = kv_heads * (dim // heads)
    stacked = [("norm1", (dim,)), ("wq", (dim, dim)), ("wk", (kv, dim)), ("wv", (kv, dim)), ("wo", (dim, dim))]
    stacked += [("norm2", (dim,)), ("w1", (hidden, dim)), ("w2", (dim, hidden)), ("w3", (hidden, dim))]
    for name, shape in stacked:
        values = take(layers, *shape)
        state |= {f"blocks.{k}.{name}.weight": values[k] for k in range(layers)}
    state["norm.weight"] = take(dim)
    model.load_state_dict(state)
    return model


def _stand_in(sequences: int, length: int, rng: Rng) -> Language:
    """A two-layer transformer trained for a few seconds on text from a sparse random Markov chain."""
    vocabulary, length = 48, min(length, 24)
    odds = torch.rand(vocabulary, vocabulary, generator=rng.child("chain").torch()) ** 24
    generator = rng.child("text").torch()
    text = torch.empty(512 + sequences, length + 1, dtype=torch.int64)
    text[:, 0] = torch.randint(0, vocabulary, (len(text),), generator=generator)
    for t in range(length):
        text[:, t + 1] = torch.multinomial(odds[text[:, t]], 1, generator=generator)[:, 0]
    with initialised_by(rng.child("model")):
        model = SmallGPT(vocabulary, 16, 4, 2, length)
    random = _problem(model, text[512:])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)

    def loss(chosen: Tensor) -> Tensor:
        part = text[chosen]
        return F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())

    descend(optimizer, drawn_batches(512, 32, 150, generator), loss)
    attention = tuple(f"blocks.{k}.[qo]*.weight" for k in range(2))
    feed = tuple(f"blocks.{k}.up.weight" for k in range(2))
    return Language(_problem(model, text[512:]), random, attention, feed, "head", True)
