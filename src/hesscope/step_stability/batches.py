"""What single batches see: batch sharpness, the edge of mini-batch SGD, and the gradient noise scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import need_count
from ..curvature import Problem
from ..curvature.data import examples_in, joined, take
from ..curvature.engines.backward import pull_back
from ..curvature.gradient_mode import differentiable
from ..curvature.losses.parsing import SeparableLoss
from ..curvature.models.evaluation import gradient_of
from ..errors import refuse
from ..linalg.estimates.estimate import ratio_of_means
from ..results.stability import BatchCurvature
from ..rng import Rng
from .preconditioned import Preconditioned

_ENTRIES = 1 << 22
FEWEST = 4  # batches, below which a standard error says nothing


def batch_curvature(
    problem: Problem, operator: Preconditioned, batch_size: int | None, batches: int, rng: Rng
) -> BatchCurvature | None:
    """E[gᵀHg]/E|g|² over batches, plain and in the optimiser's coordinates, and tr Σ/|G|²; None for a single batch.

    `batch_size`: disjoint batches of so many examples, drawn at random; None takes the problem's own batches. Costs a
    gradient and one or two products on each, and one gradient of all data.
    """
    chosen = _own(problem, batches) if batch_size is None else drawn(problem, batch_size, batches, rng)
    if chosen is None:
        return None
    whole = problem.gradient() if _is_mean(problem) else problem.gradient() / problem.totals[1]
    total = sum(examples_in(batch) or 1 for batch in problem.batches)
    plain, own, noise, sizes = [], [], [], []

    def turn(gradient: Tensor) -> Tensor:
        return operator.root(operator.root(gradient[:, None]))[:, 0]

    for batch in chosen:
        gradient, products, count = products_on_batch(problem, batch, [_itself, turn])
        size = examples_in(batch) or 1
        plain.append((_inner(gradient, products[0]), _inner(gradient, gradient)))
        turned = turn(gradient)
        own.append((_inner(turned, products[1]), _inner(gradient, turned)))
        mean = gradient if _is_mean(problem) else gradient / count
        away = mean - whole
        noise.append(size * _inner(away, away) / max(1 - size / total, 1e-12))
        sizes.append(size)
    value, error = ratio_of_means(np.array(plain))
    seen, seen_error = ratio_of_means(np.array(own))
    square = _inner(whole, whole)
    spread = float(np.std(noise, ddof=1)) / math.sqrt(len(noise))
    return BatchCurvature(
        sharpness=value,
        sharpness_stderr=error,
        preconditioned=seen,
        preconditioned_stderr=seen_error,
        noise_scale=float(np.mean(noise)) / square if square > 0 else math.inf,
        noise_scale_stderr=spread / square if square > 0 else math.inf,
        batch_size=float(np.mean(sizes)),
        batches=len(sizes),
        examples=total,
    )


def _own(problem: Problem, most: int) -> list[Any] | None:
    found: list[Any] = []
    for batch in problem.batches:
        if len(found) < most:
            found.append(batch)
    return found if len(found) >= FEWEST else None


def drawn(problem: Problem, batch_size: int, batches: int, rng: Rng) -> list[Any]:
    """Disjoint batches of `batch_size` examples, as many as there are, at most `batches`."""
    size = need_count("batch_size", batch_size)
    sizes = [examples_in(batch) for batch in problem.batches]
    if any(one is None for one in sizes) or not problem.divisible:
        refuse(
            "batches can be drawn only where examples do not see each other",
            "examples whose loss is not the sum of its parts",
            "Leave batch_size out and give the problem the batches you train on.",
        )
    known = [one or 0 for one in sizes]
    number = min(batches, sum(known) // size)
    if number < FEWEST:
        refuse(
            f"batch_size must leave at least {FEWEST} batches of the data",
            f"batch_size={batch_size} of {sum(known)} examples",
            "Give the problem more data, or leave batch_size out.",
        )
    order = torch.randperm(sum(known), generator=rng.child("batches").torch(), device="cpu")
    return [_gathered(problem, order[i * size : (i + 1) * size].sort().values, known) for i in range(number)]


def _gathered(problem: Problem, places: Tensor, sizes: Sequence[int]) -> Any:
    whole: Any = None
    start = 0
    for batch, size in zip(problem.batches, sizes, strict=False):
        here = places[(places >= start) & (places < start + size)] - start
        start += size
        if len(here):
            piece = take(batch, here)
            whole = piece if whole is None else joined(whole, piece)
            if whole is None:
                refuse(
                    "batches can be drawn only from examples of one shape",
                    "several shapes",
                    "Leave batch_size out and give the problem the batches you train on.",
                )
    return whole


@differentiable()
def products_on_batch(
    problem: Problem, batch: Any, directions: Sequence[Callable[[Tensor], Tensor]]
) -> tuple[Tensor, list[Tensor], float]:
    """g of a batch, its H_B d(g) along each direction d of it, and its count; of its loss as training has it."""
    leaves = problem.leaves()
    terms = problem.evaluate(batch, leaves)
    scale = 1 / terms.count if _is_mean(problem) else 1.0
    pieces = gradient_of(terms, leaves, create_graph=True, through_loss=True)
    like = torch.zeros(0, dtype=problem.dtype, device=problem.device)
    gradient = scale * problem.space.pack([None if piece is None else piece.detach() for piece in pieces], like)
    live = [piece for piece in pieces if piece is not None and piece.requires_grad]
    products = []
    for left, direction in zip(reversed(range(len(directions))), directions, strict=True):
        along = [
            part.to(piece.dtype)
            for part, piece in zip(problem.space.unpack(direction(gradient)), pieces, strict=True)
            if piece is not None and piece.requires_grad
        ]
        found = pull_back(live, list(leaves.values()), along, keep=left > 0) if live else (None,) * len(pieces)
        products.append(scale * problem.space.pack(list(found), like))
    return gradient, products, terms.count


def along_gradient(problem: Problem, batch: Any) -> tuple[float, float]:
    """gᵀ H_B g and |g|² of one batch."""
    gradient, (image,), _ = products_on_batch(problem, batch, [_itself])
    return _inner(gradient, image), _inner(gradient, gradient)


def _itself(gradient: Tensor) -> Tensor:
    return gradient


def _is_mean(problem: Problem) -> bool:
    return not isinstance(problem.loss, SeparableLoss) or bool(problem.loss.mean)


def _inner(a: Tensor, b: Tensor) -> float:
    """In float64, some entries at a time: whole copies of long vectors would be the largest thing in memory."""
    pairs = zip(torch.split(a, _ENTRIES), torch.split(b, _ENTRIES), strict=True)
    return sum(float(x.double() @ y.double()) for x, y in pairs)
