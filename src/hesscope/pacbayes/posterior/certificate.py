"""The certificate: draws of the stochastic network on the training data, turned into a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...measure import Array
from ...operators.tensors import tensor_of
from ...result import Result
from ...rng import Rng
from ..bounds import Bound, Grid, bound
from ..settings import Settings
from .bases import Basis
from .gaussian import Posterior
from .sample import Sample
from .stochastic import StochasticNetwork

_CHUNK = 4096
_MINIBATCH = 100


@dataclass(frozen=True, eq=False)
class Certificate(Result):
    """A bound, the posterior it holds for, and what it took. `variance` and `eigenvalues` are in the basis' coordinates.

    `gradients` counts minibatch gradients, `seconds` processor time including bases and the final draws.
    """

    method: str
    bound: Bound
    mean_error: float  # training error of the network at the posterior's mean
    test_error: float | None  # of the stochastic network, where test data were given
    test_mean_error: float | None
    gradients: int
    seconds: float
    settings: dict[str, Any]
    history: Array  # (epochs, 2): surrogate error and divergence, as the objective saw them
    mean: dict[str, Array]  # in the standard basis
    variance: dict[str, Array]
    rows: dict[str, Array]  # U, for parameters with an eigenbasis
    columns: dict[str, Array]  # V
    eigenvalues: dict[str, Array]

    def draw(self, rng: Rng) -> dict[str, Tensor]:
        """Weights from the posterior, by name, as `model.load_state_dict(..., strict=False)` takes them."""
        generator = rng.torch()
        found = {}
        for name, mean in self.mean.items():
            basis = Basis(*(_tensor(part.get(name)) for part in (self.rows, self.columns)))
            noise = torch.randn(self.variance[name].shape, generator=generator, dtype=torch.float64, device="cpu")
            scaled = (noise * tensor_of(self.variance[name]).double().sqrt()).to(tensor_of(mean).dtype)
            found[name] = tensor_of(mean) + basis.back(scaled, mean.shape)
        return found

    def lines(self) -> list[str]:
        """What to tell a reader."""
        tested = "" if self.test_error is None else f"; test error {self.test_error:.4f}"
        return [
            f"{self.method}: true error at most {self.bound.value:.4f} with probability {1 - self.bound.failure:g}{tested}",
            *self.bound.lines()[:3],
            f"cost: {self.gradients} gradients of minibatches, {self.seconds:.0f} s of processor time",
        ]


def certify(posterior: Posterior, network: StochasticNetwork, sample: Sample, settings: Settings, rng: Rng) -> Bound:
    """The bound for this posterior, with each group's prior variance at the better neighbour on the grid."""
    grid = Grid(settings.precision, settings.ceiling)
    indices, divergence = [], 0.0
    for group, half_log in enumerate(posterior.log_prior.detach().tolist()):
        options = {
            j: posterior.certified_kl(group, grid.variance(j)) for j in grid.neighbours(float(np.exp(2 * half_log)))
        }
        chosen = min(options, key=lambda j: options[j] + grid.price(j))
        indices.append(chosen)
        divergence += options[chosen]
    error, draws = gibbs_error(network, sample, settings, rng)
    return bound(
        error, draws, divergence, sample.size, indices, delta=settings.delta, delta_mc=settings.delta_mc, grid=grid
    )


def gibbs_error(network: StochasticNetwork, sample: Sample, settings: Settings, rng: Rng) -> tuple[float, int]:
    """The mean error over independent draws of the weights, and their number.

    Where every example can have its own weights, a pass over the data is as many draws as there are examples: errors
    of independent draws, whose mean over the pass is the stochastic network's. Otherwise each draw is scored on random
    examples.
    """
    with torch.no_grad():
        if network.local:
            passes = -(-settings.draws // sample.size)
            wrong = 0.0
            for number in range(passes):
                generator = rng.child("pass", number).torch()
                wrong += sum(_wrong(network, batch, "example", generator) for batch in sample.chunks(_CHUNK))
            return wrong / (passes * sample.size), passes * sample.size
        total = 0.0
        for number in range(settings.batch_draws):
            generator = rng.child("draw", number).torch()
            which = torch.randint(0, sample.size, (_MINIBATCH,), generator=generator, device="cpu")
            total += _wrong(network, sample.take(which), "batch", generator) / _MINIBATCH
        return total / settings.batch_draws, settings.batch_draws


def mean_error(network: StochasticNetwork, sample: Sample) -> float:
    """The error of the network at the posterior's mean."""
    with torch.no_grad():
        return sum(_wrong(network, batch, "none", None) for batch in sample.chunks(_CHUNK)) / sample.size


def _wrong(network: StochasticNetwork, batch: Any, noise: Any, generator: torch.Generator | None) -> float:
    """Examples whose label is not the one on top; a tie is an error, however a tie is broken later."""
    logits, labels = network.logits(batch, noise, generator)
    label = labels[:, None]
    others = logits.scatter(-1, label, -torch.inf).amax(-1)
    return float((~(logits.gather(-1, label)[:, 0] > others)).sum())


def _tensor(array: Array | None) -> Tensor | None:
    return None if array is None else tensor_of(array)
