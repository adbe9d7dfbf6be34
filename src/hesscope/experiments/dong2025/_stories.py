"""A trained transformer: stories260K from the data folder, or a small one trained here on synthetic text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...curvature import Problem
from ...rng import Rng
from ...zoo.gpt import SmallGPT
from ...zoo.models import initialised_by
from ...zoo.stories import WEIGHTS, Stories, chain_text, learn_text, long_stories, read_stories, stories_folder


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
    where = stories_folder(folder)
    if where is None:
        return _stand_in(sequences, length, rng)
    model = read_stories(where / WEIGHTS)
    x = long_stories(where, length)[:sequences]
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


def _stand_in(sequences: int, length: int, rng: Rng) -> Language:
    """A two-layer transformer trained for a few seconds on text from a sparse random Markov chain."""
    vocabulary, length = 48, min(length, 24)
    text = chain_text(vocabulary, 512 + sequences, length, rng)
    with initialised_by(rng.child("model")):
        model = SmallGPT(vocabulary, 16, 4, 2, length)
    random = _problem(model, text[512:])
    learn_text(model, text[:512], 32, 150, rng)
    attention = tuple(f"blocks.{k}.[qo]*.weight" for k in range(2))
    feed = tuple(f"blocks.{k}.up.weight" for k in range(2))
    return Language(_problem(model, text[512:]), random, attention, feed, "head", True)
