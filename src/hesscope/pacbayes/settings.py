"""The methods of the papers and ours, and how long and how fast they are optimised."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from ..arguments import as_float, is_count, shown
from ..errors import refuse

MethodName = Literal["base", "appr", "iter", "iter_decay", "iter_m", "local"]


@dataclass(frozen=True)
class PosteriorMethod:
    """A posterior's basis and how often it is computed, how noise is drawn, and what is minimised.

    The last six are what "local" adds to the papers' methods; `replace(METHODS["local"], newton_means=False)` is that
    method without one of them.
    """

    basis: Literal["standard", "kronecker", "predicted"]
    refreshed: Literal["never", "regularly", "ever later"] = "never"
    example_draws: bool = False  # every example of a batch has weights of its own
    exact_error: bool = False  # the 0-1 error itself in the second half, not cross-entropy throughout
    inverted_bound: bool = False  # kl⁻¹ itself, not e + √(B/2)
    curved_variances: bool = False  # in closed form from the curvature, and in Kronecker form from there on
    newton_means: bool = False  # steps of the means are shares of Newton steps, not Adam's
    tensor_scales: bool = False  # a prior scale for every tensor, where there are examples enough

    @property
    def local(self) -> bool:
        """Whether it takes a network of Linear layers that see every example once."""
        return self.example_draws or self.exact_error

    def refresh_at(self, epoch: int, interval: int) -> bool:
        """Whether the basis is computed anew before this epoch; "ever later": after η, 2η, 4η, ... epochs."""
        if epoch == 0 or self.refreshed == "never" or epoch % interval:
            return False
        times = epoch // interval
        return self.refreshed == "regularly" or times & (times - 1) == 0


METHODS: dict[str, PosteriorMethod] = {
    "base": PosteriorMethod("standard"),
    "appr": PosteriorMethod("kronecker"),
    "iter": PosteriorMethod("kronecker", "regularly"),
    "iter_decay": PosteriorMethod("kronecker", "ever later"),
    "iter_m": PosteriorMethod("predicted", "regularly"),
    "local": PosteriorMethod("kronecker", "never", True, True, True, True, True, True),
}


@dataclass(frozen=True)
class Settings:
    """How the posterior is optimised (Adam, cosine schedule) and with which confidence it is certified."""

    epochs: int = 20
    """Passes over the training data."""
    batch_size: int = 256
    """Examples per step."""
    rate: float = 1e-3
    """Learning rate of the means."""
    newton_rate: float = 0.1
    """Step of the means in our method, as a share of a Newton step on a batch."""
    scale_rate: float = 2e-2
    """Learning rate of the log standard deviations and of the prior's."""
    refresh: int = 5
    """Epochs between computations of the eigenbasis (η of the paper)."""
    basis_examples: int = 10_000
    """Examples, drawn at random, that a basis is computed from."""
    draws: int = 180_000
    """Weight draws of the final estimate, where every example can have its own."""
    batch_draws: int = 3_000
    """Weight draws of the final estimate, where only every batch can."""
    delta: float = 0.025
    """Probability that the bound fails by the draw of the data."""
    delta_mc: float = 0.01
    """Probability that the Monte-Carlo estimate fails."""
    precision: float = 100.0
    """b: how fine the grid of prior variances is."""
    ceiling: float = 0.1
    """c: above all prior variances."""
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be run (not on creation, so that the command line can say it in one line)."""
        for name in ("delta", "delta_mc"):
            check_failure(name, getattr(self, name))
        if self.delta + self.delta_mc >= 1:
            refuse("delta + delta_mc must be below 1", f"{self.delta + self.delta_mc}", "Try 0.025 and 0.01.")
        for name in ("epochs", "batch_size", "refresh", "basis_examples", "draws", "batch_draws"):
            if not is_count(getattr(self, name), 1):
                given = shown(getattr(self, name))
                refuse(f"{name} must be an integer of at least 1", given, "See hs.pacbayes.Settings.")
        for name in ("rate", "scale_rate", "newton_rate"):
            rate = as_float(getattr(self, name))
            if rate is None or not 0 < rate < inf:
                given = f"{name}={shown(getattr(self, name))}"
                refuse("learning rates must be positive", given, "Try rate 1e-3, scale_rate 2e-2, newton_rate 0.1.")


def check_failure(name: str, value: float) -> None:
    """Refuse a probability of failure that is none."""
    found = as_float(value)
    if found is None or not 0 < found < 1:
        refuse(f"{name} must lie strictly between 0 and 1", shown(value), "It is a probability of failure; try 0.025.")
