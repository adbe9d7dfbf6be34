"""Backward passes that explain themselves, and products from scratch for when no graph is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ...errors import DerivativeError, HesscopeError
from ...rng import Rng
from ..losses.base import OutputLoss
from ..problem import Problem
from .memory import is_out_of_memory


@dataclass(frozen=True)
class Place:
    """Where a backward pass may begin: the place of a tensor in its graph, without its numbers."""

    edge: GradientEdge
    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool = True


def place_of(tensor: Tensor | Place) -> Tensor | Place:
    """The place of a tensor in its graph; one that is in none stays what it is."""
    if isinstance(tensor, Place) or not tensor.requires_grad:
        return tensor
    return Place(get_gradient_edge(tensor), tensor.shape, tensor.dtype)


def pull_back(
    sources: Sequence[Tensor | Place],
    targets: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    batched: bool = False,
    keep: bool = True,
) -> tuple[Tensor | None, ...]:
    """Σ_i (∂source_i/∂target)ᵀ cotangent_i for every target, through a graph of first derivatives."""
    begin = [source.edge if isinstance(source, Place) else get_gradient_edge(source) for source in sources]
    try:
        return torch.autograd.grad(
            begin, targets, cotangents, retain_graph=keep, allow_unused=True, is_grads_batched=batched
        )
    except HesscopeError:
        raise
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise DerivativeError(f"every operation must have a second derivative; got {error}") from error


def hessian_product(problem: Problem, batches: Iterable[Any], parameters: Mapping[str, Tensor], v: Tensor) -> Tensor:
    """Σ_batches H v at these parameters by double backward from scratch, for a flat v; not scaled."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
    pieces, total = problem.space.unpack(v), torch.zeros_like(v)
    for batch in batches:
        gradients = problem.batch_gradient(batch, leaves, create_graph=True)
        live = [(g, d) for g, d in zip(gradients, pieces, strict=True) if g is not None and g.requires_grad]
        if live:
            pulled = pull_back([g for g, _ in live], list(leaves.values()), [d.to(g) for g, d in live], keep=False)
            total += problem.space.pack(pulled, total)
    return total


def jacobian_product(
    terms: OutputLoss, leaves: Mapping[str, Tensor], pieces: Sequence[Tensor], u: Tensor
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """(J v, Jᵀ u) of one batch: Jᵀ w is linear in w, so its derivative in w along v is J v."""
    if not terms.f.requires_grad:
        return torch.zeros_like(u), (None,) * len(pieces)
    w = u.detach().requires_grad_()
    pulled = torch.autograd.grad(terms.f, list(leaves.values()), w, create_graph=True, allow_unused=True)
    live = [(g, d) for g, d in zip(pulled, pieces, strict=True) if g is not None and g.requires_grad]
    (pushed,) = pull_back([g for g, _ in live], [w], [d.to(g) for g, d in live]) if live else (None,)
    return torch.zeros_like(u) if pushed is None else pushed, pulled


def linear_at(like: Tensor) -> Tensor:
    """A u at which to differentiate Jᵀ u, which is linear in it: anywhere but at zero, of which some of torch's formulas take
    logarithms (that of logcumsumexp)."""
    return noise_like(Rng(0).child("linear"), like).requires_grad_()


def random_direction(problem: Problem, rng: Rng) -> Tensor:
    """A random vector in which every tensor moves in proportion to its own size."""
    pieces = [(size_of(t) * noise_like(rng.child(name), t)).reshape(-1) for name, t in problem.parameters.items()]
    return torch.cat(pieces).to(problem.dtype)


def size_of(tensor: Tensor) -> Tensor:
    """The root mean square of a tensor's entries; a hundredth for biases that start at zero."""
    norm = torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)
    return torch.clamp_min(norm / max(tensor.numel(), 1) ** 0.5, 1e-2).to(tensor)


def noise_like(rng: Rng, like: Tensor, *shape: int) -> Tensor:
    """Normal numbers in the shape of a tensor or another, the same on every device (with seven digits, drawn faster)."""
    return torch.randn(shape or like.shape, generator=rng.torch(), dtype=torch.float32, device="cpu").to(like)
