"""stories260K: a Llama-2 decoder trained on TinyStories, read from llama2.c's weights; attention sinks can be forced on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..missing_data import note_stand_in
from ..rng import Rng
from .data import data_dir
from .training import descend, drawn_batches

WEIGHTS, TOKENS = "stories260K.bin", "tinystories_tok512.npz"


def long_stories(folder: Path, length: int) -> Tensor:
    """The first `length + 1` tokens of every story that has as many."""
    with np.load(folder / TOKENS, allow_pickle=False) as file:
        tokens, offsets = file["tokens"].astype(np.int64), file["offsets"]
    long = np.flatnonzero(np.diff(offsets) > length)
    return torch.from_numpy(np.stack([tokens[offsets[k] : offsets[k] + length + 1] for k in long]))


def stories_folder(given: str | None) -> Path | None:
    """The data folder, where the model and its stories are in it; None where a stand-in was asked for."""
    where = data_dir(given)
    if where is not None and all((where / name).exists() for name in (WEIGHTS, TOKENS)):
        return where
    note_stand_in("the language model stories260K", (WEIGHTS, TOKENS), where)
    return None


def learn_text(model: nn.Module, text: Tensor, batch: int, steps: int, rng: Rng) -> None:
    """A few seconds of Adam on these sequences, in place: what stands in for a trained language model."""

    def loss(chosen: Tensor) -> Tensor:
        part = text[chosen]
        return F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())

    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    descend(optimizer, drawn_batches(len(text), batch, steps, rng.child("batches").torch()), loss)


def chain_text(vocabulary: int, sequences: int, length: int, rng: Rng) -> Tensor:
    """Sequences of a sparse random Markov chain: what stands in for stories where there are none."""
    odds = torch.rand(vocabulary, vocabulary, generator=rng.child("chain").torch()) ** 24
    generator = rng.child("text").torch()
    text = torch.empty(sequences, length + 1, dtype=torch.int64)
    text[:, 0] = torch.randint(0, vocabulary, (len(text),), generator=generator)
    for t in range(length):
        text[:, t + 1] = torch.multinomial(odds[text[:, t]], 1, generator=generator)[:, 0]
    return text


class _StoriesBlock(nn.Module):
    def __init__(self, dim: int, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, size = heads, kv_heads, dim // heads
        self.sink = 0.0  # on the first head's scores of the first token
        self.norm1, self.norm2 = nn.RMSNorm(dim, 1e-5), nn.RMSNorm(dim, 1e-5)
        self.wq, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = (nn.Linear(dim, kv_heads * size, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def projections(self, x: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head: `(batch, heads, length, size)`."""
        batch, length, _ = x.shape
        h = self.norm1(x)
        q = _rotate(self.wq(h).view(batch, length, self.n_heads, -1), turn).transpose(1, 2)
        k = _rotate(self.wk(h).view(batch, length, self.kv_heads, -1), turn).transpose(1, 2)
        v = self.wv(h).view(batch, length, self.kv_heads, -1).transpose(1, 2)
        share = self.n_heads // self.kv_heads
        return q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)

    def mask(self, x: Tensor) -> Tensor:
        """What is added to the scores: the past is open, and the first head's score of the first token is raised."""
        length = x.shape[1]
        added = torch.full((self.n_heads, length, length), float("-inf"), dtype=x.dtype).triu(1)
        added[0, :, 0] += self.sink
        return added

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        q, k, v = self.projections(x, turn)
        if self.sink:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(x))
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).reshape(x.shape))
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
        x, turn = self._begin(tokens)
        for block in self.blocks:
            x = block(x, turn)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def tie(self) -> Stories:
        """One matrix for embedding and head, as it was trained."""
        self.head.weight = self.embed.weight
        return self

    def with_sink(self, bias: float) -> Stories:
        """`bias` on the first token's score before the softmax, in the first head of every block."""
        for block in self._layers():
            block.sink = bias
        return self

    @torch.no_grad()
    def first_token_share(self, tokens: Tensor) -> float:
        """Attention on the first token in the first heads: mean over blocks, sequences and positions after the first."""
        x, turn = self._begin(tokens)
        shares = []
        for block in self._layers():
            q, k, _ = block.projections(x, turn)
            scores = q[:, 0] @ k[:, 0].transpose(1, 2) / q.shape[-1] ** 0.5 + block.mask(x)[0]
            shares.append(scores.softmax(-1)[:, 1:, 0].mean())
            x = block(x, turn)
        return float(torch.stack(shares).mean())

    def _layers(self) -> list[_StoriesBlock]:
        return [block for block in self.blocks if isinstance(block, _StoriesBlock)]

    def _begin(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Embedded tokens and the angles of their rotary positions."""
        x: Tensor = self.embed(tokens)
        size = self.sizes[0] // self.sizes[3]
        rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
        return x, torch.arange(tokens.shape[1], dtype=x.dtype)[:, None] * rates


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
