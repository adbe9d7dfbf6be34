"""Random directions with the norms of the network's own filters (Li et al., 2018, arXiv 1712.09913)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..curvature import Problem
from ..errors import refuse
from ..layers.kinds import neuron_axis
from ..rng import Rng


def filter_normalised(problem: Problem, rng: Rng) -> Tensor:
    """A Gaussian direction whose every filter has the norm of the network's filter, so that t = 1 moves each by its own size.

    A filter is what makes one output: a row of a linear layer, an output channel of a convolution, a token of an
    embedding. Tensors with fewer than two axes (biases, scales and shifts of norms) stay where they are, as in the
    authors' code: a network is invariant to their scale or not at all, and their norms say nothing.
    """
    draw = rng.torch()
    pieces: list[Tensor] = []
    for name in problem.space.names:
        weight = problem.parameters[name].detach().double().cpu()
        noise = torch.randn(weight.shape, generator=draw, dtype=torch.float64, device="cpu")
        pieces.append(_scaled(noise, weight, *_filters(problem, name)) if weight.ndim > 1 else 0 * noise)
    flat = problem.space.pack(pieces, torch.empty(0, dtype=torch.float64, device="cpu")).to(problem.device)
    if not bool((flat != 0).any()):
        refuse(
            "random filters need a weight with two or more axes that is not zero",
            f"{', '.join(problem.space.names[:5])}",
            "Select weights with params=, or pass a vector of your own.",
        )
    return flat


def _scaled(noise: Tensor, weight: Tensor, groups: int, axes: tuple[int, ...]) -> Tensor:
    """The noise with the weight's norm in each filter: the first axis split in `groups`, `axes` then count the filters."""
    own, drawn = (tensor.reshape(groups, -1, *weight.shape[1:]) for tensor in (weight, noise))
    others = tuple(axis for axis in range(own.ndim) if axis not in axes)
    wanted, found = (torch.linalg.vector_norm(tensor, dim=others, keepdim=True) for tensor in (own, drawn))
    scaled: Tensor = drawn * wanted / found.clamp_min(torch.finfo(torch.float64).tiny)
    return scaled.reshape(weight.shape)


def _filters(problem: Problem, name: str) -> tuple[int, tuple[int, ...]]:
    """Groups of the first axis, and which axes count filters: the first, but for layers that keep their inputs first."""
    path, _, local = name.rpartition(".")
    module = problem.model.get_submodule(path)
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d) and local == "weight":
        return module.groups, (0, 2)
    return 1, ((neuron_axis(module, local) or 0) + 1,)
