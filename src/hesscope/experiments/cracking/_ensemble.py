"""Many small networks at once: stacked weights, trained together, and their sharpness by Lanczos on exact products."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..._version import __version__
from ...measure import Array
from ...rng import Rng
from ..long_runs import Kept, progress

Weights = tuple[Tensor, ...]  # one (networks, outputs, inputs) tensor for each layer
Loss = Callable[[Weights], Tensor]  # of every network: (networks,)
PARAMETRIZATIONS = ("SP", "muP", "NTP")
CHOSEN = (
    "full-batch descent with its own rate until nothing is gained, where the paper has SGD in batches of 128 with rates from 0.01 to "
    "0.00001; muP weights of standard deviation min(1, √(out/in))/√in and rates in proportion to out/in, where D.1.3 prints a variance "
    "of out/in, with which square layers blow up, and rates of 1/in."
)


def widths_of(depth: int, width: int, ends: int) -> tuple[int, ...]:
    """Layer sizes ends, width, ..., width, ends of a network with `depth` weight matrices."""
    return (ends, *([width] * (depth - 1)), ends)


def initial_weights(rng: Rng, networks: int, widths: Sequence[int], parametrization: str) -> Weights:
    """SP: uniform in ±1/√fan_in; NTP: standard normal; muP: normal with the spectral scale min(1, √(out/in))/√in."""
    generator = rng.torch()
    weights = []
    for inputs, outputs in itertools.pairwise(widths):
        shape = (networks, outputs, inputs)
        if parametrization == "SP":
            draw = (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) / inputs**0.5
        else:
            draw = torch.randn(shape, generator=generator, dtype=torch.float64)
        if parametrization == "muP":
            draw = draw * min(1.0, (outputs / inputs) ** 0.5) / inputs**0.5
        weights.append(draw)
    return tuple(weights)


def mean_squared_loss(x: Tensor, y: Tensor, widths: Sequence[int], parametrization: str, relu: bool) -> Loss:
    """ℓ(W) = 1/(2n) Σ |W_B φ(... φ(W_1 x))  − y|², each layer times 1/√fan_in under NTP."""
    scales = [n**-0.5 if parametrization == "NTP" else 1.0 for n in widths[:-1]]

    def loss(weights: Weights) -> Tensor:
        hidden = x
        for layer, (weight, scale) in enumerate(zip(weights, scales, strict=True)):
            hidden = scale * (torch.relu(hidden) if relu and layer else hidden) @ weight.mT
        return ((hidden - y) ** 2).sum((-2, -1)) / (2 * len(x))

    return loss


def learning_rates(widths: Sequence[int], parametrization: str) -> list[float]:
    """The factor of each layer's learning rate: out/in under muP, else 1."""
    pairs = itertools.pairwise(widths)
    return [outputs / inputs if parametrization == "muP" else 1.0 for inputs, outputs in pairs]


def train(
    weights: Weights, loss: Loss, rates: Sequence[float], steps: int, kept: Kept, name: str, block: int = 25
) -> Weights:
    """Gradient descent for all networks together; the common rate is halved when a block of steps fails, else grows.

    The first rate is a third of the largest stable one at initialisation. A run that was killed goes on from what is `kept`.
    """
    blocks, begun = steps // block, 0
    if (state := kept.load()) is not None:
        begun, weights, best, rate = state["blocks"], tuple(state["weights"]), state["best"], state["rate"]
    else:
        rate = 0.67 / float(sharpness(weights, loss, scales=[r**0.5 for r in rates], steps=10).max())
        best = loss(weights)
    for done in range(begun + 1, blocks + 1):
        new = weights
        for _ in range(block):
            new = tuple(w - rate * r * g for w, g, r in zip(new, _gradient(new, loss), rates, strict=True))
        reached = loss(new)
        if bool((reached <= best * 1.0001).all()):
            weights, best, rate = new, reached, rate * 1.1
        else:
            rate *= 0.5
        if done % max(1, blocks // 20) == 0 or done == blocks:
            kept.save({"blocks": done, "weights": list(weights), "best": best, "rate": rate})
            progress(f"{name}: step {done * block} of {steps}")
    return weights


def _gradient(weights: Weights, loss: Loss) -> Weights:
    # The networks do not see each other, so the gradient of the sum holds the gradient of each.
    leaves = tuple(w.detach().requires_grad_() for w in weights)
    return torch.autograd.grad(loss(leaves).sum(), leaves)


def sharpness(weights: Weights, loss: Loss, scales: Sequence[float] | None = None, steps: int = 30) -> Tensor:
    """λ_max of every network's Hessian: (networks,), by Lanczos with full reorthogonalisation on double backward.

    `scales` measures parameters in units of their own: λ_max of diag(scales) H diag(scales).
    """
    units = [1.0] * len(weights) if scales is None else list(scales)
    leaves = tuple(w.detach().requires_grad_() for w in weights)
    slopes = torch.autograd.grad(loss(leaves).sum(), leaves, create_graph=True)
    networks, sizes = weights[0].shape[0], [w[0].numel() for w in weights]

    def apply(flat: Tensor) -> Tensor:
        pieces = [
            p.reshape(w.shape) * u for p, w, u in zip(torch.split(flat, sizes, dim=1), weights, units, strict=True)
        ]
        out = torch.autograd.grad(slopes, leaves, pieces, retain_graph=True, materialize_grads=True)
        return torch.cat([(g * u).reshape(networks, -1) for g, u in zip(out, units, strict=True)], dim=1)

    steps = min(steps, sum(sizes))
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(networks, sum(sizes), generator=generator, dtype=torch.float64)
    basis = torch.zeros(networks, steps, sum(sizes), dtype=torch.float64)
    basis[:, 0] = start / start.norm(dim=1, keepdim=True)
    small = torch.zeros(networks, steps, steps, dtype=torch.float64)
    for i in range(steps):
        image = apply(basis[:, i])
        reach = image.norm(dim=1, keepdim=True)
        for _ in range(2):  # twice is enough
            overlap = basis[:, : i + 1] @ image[:, :, None]
            small[:, : i + 1, i] += overlap[:, :, 0]
            image = image - (overlap.mT @ basis[:, : i + 1])[:, 0]
        if i + 1 < steps:
            length = image.norm(dim=1, keepdim=True)
            # A network whose Krylov space is exhausted (fitted ones have low rank) goes on with zeros, not with noise.
            length = torch.where(length > 1e-10 * reach.clamp_min(1e-10), length, torch.zeros_like(length))
            small[:, i + 1, i] = length[:, 0]
            basis[:, i + 1] = torch.where(length > 0, image / length, torch.zeros_like(image))
    # The upper triangle holds the projections, exact to rounding; below it lies the same tridiagonal matrix.
    values: Tensor = torch.linalg.eigvalsh(small, UPLO="L")
    return values[:, -1]


def squared_norms(matrices: Tensor) -> dict[str, Array]:
    """Squared spectral, Frobenius and nuclear norm of each matrix of a stack."""
    values = torch.linalg.svdvals(matrices)
    return {
        "spectral": (values[:, 0] ** 2).numpy(),
        "Frobenius": (values**2).sum(1).numpy(),
        "nuclear": (values.sum(1) ** 2).numpy(),
    }


def compressed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Fewer rows with the same moments: a linear network has the same loss on the factor R of [x y]."""
    n, inputs = x.shape
    both = torch.cat([x, y], dim=1)
    if n <= both.shape[1]:
        return x, y
    factor = torch.linalg.qr(both, mode="r").R * (both.shape[1] / n) ** 0.5
    return factor[:, :inputs], factor[:, inputs:]


def teacher_data(rng: Rng, samples: int, ends: int, relu: bool) -> tuple[Tensor, Tensor]:
    """Standard normal inputs; targets of a random one-layer teacher plus noise of variance 0.01."""
    inputs, noise, matrix = (rng.child(name).torch() for name in ("inputs", "noise", "teacher"))
    x = torch.randn(samples, ends, generator=inputs, dtype=torch.float64)
    clean = x @ torch.randn(ends, ends, generator=matrix, dtype=torch.float64) / ends**0.5
    y = (torch.relu(clean) if relu else clean) + 0.1 * torch.randn(samples, ends, generator=noise, dtype=torch.float64)
    return (x, y) if relu else compressed(x, y)


@dataclass(frozen=True, eq=False)
class TrainedFamily:
    """Networks of one family on one teacher's data, before and after training."""

    inputs: Tensor
    loss: Loss
    start: Weights
    end: Weights
    progress: Tensor  # excess loss at the end over that at the start, of every network


def trained(
    rng: Rng, parametrization: str, widths: Sequence[int], networks: int, samples: int, steps: int, relu: bool
) -> TrainedFamily:
    """Draw data and weights, and descend; the floor of the excess is that of the best linear map, or 0 with ReLU."""
    x, y = teacher_data(rng.child("data"), samples, widths[0], relu)
    start = initial_weights(rng.child(parametrization), networks, widths, parametrization)
    loss = mean_squared_loss(x, y, widths, parametrization, relu)
    kept = Kept(repr((rng, parametrization, tuple(widths), networks, samples, steps, relu, __version__)))
    name = f"{parametrization}, {len(widths) - 1} layers, size {widths[0]}"
    end = train(start, loss, learning_rates(widths, parametrization), steps, kept, name)
    floor = 0.0 if relu else float(((x @ torch.linalg.lstsq(x, y).solution - y) ** 2).sum() / (2 * len(x)))
    return TrainedFamily(x, loss, start, end, (loss(end) - floor) / (loss(start) - floor))


def pearson(a: Array, b: Array) -> float:
    """Pearson's correlation; 0 when one of the two does not vary."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
