"""The posterior N(w, U diag(s) Uᵀ) and the prior N(w₀, λ I) while they are optimised."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi

import torch
import torch.nn.functional as F
from torch import Tensor

from ..bounds import Grid
from ..gaussian import gaussian_kl
from .bases import Basis

Named = dict[str, Tensor]


class Posterior:
    """Means, log standard deviations and prior centre of every parameter, in coordinates of its basis.

    `groups` says which prior scale each parameter has: all the same, or one for each. A weight with `log_curvature` (a, b) has
    s_ij = λ/(1 + e^(a_i + b_j)), which is λ and curvature in Kronecker form: few numbers, whose gradients are sums, and
    one step in λ takes all flat directions along. With a number for each s_ij, optimisers that normalise gradients
    make each one jitter, and every direction pays for it in KL.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], centre: Mapping[str, Tensor], bases: dict[str, Basis], per_tensor: bool
    ) -> None:
        self.shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        self.weights_before = dict(centre)
        self.bases = bases
        self.mean: Named = {name: bases[name].into(weight) for name, weight in weights.items()}
        self.prior: Named = {name: bases[name].into(weight) for name, weight in centre.items()}
        self.log_scale: Named = {name: torch.zeros_like(mean) for name, mean in self.mean.items()}
        self.log_curvature: dict[str, tuple[Tensor, Tensor]] = {}
        self.groups = {name: i if per_tensor else 0 for i, name in enumerate(weights)}
        self.log_prior = torch.zeros(
            max(self.groups.values()) + 1, dtype=torch.float64, device="cpu"
        )  # ½ log λ of each group

    def weights(self) -> Named:
        """w in the standard basis."""
        return {name: self.bases[name].back(mean.detach(), self.shapes[name]) for name, mean in self.mean.items()}

    def log_deviation(self, name: str) -> Tensor:
        """½ log s of one parameter."""
        if name not in self.log_curvature:
            return self.log_scale[name]
        row, column = self.log_curvature[name]
        return self.log_prior[self.groups[name]].to(row) - 0.5 * F.softplus(row + column)

    def scales_from_weights(self) -> None:
        """s = w², the papers' start; small weights start at a tenth of their tensor's RMS, else they stay stuck."""
        for name, mean in self.mean.items():
            floor = 0.1 * mean.square().mean().sqrt().clamp_min(1e-6)
            self.log_scale[name] = mean.abs().clamp_min(floor).log()

    def change_bases(self, bases: dict[str, Basis]) -> None:
        """The same means, and the nearest diagonal covariance, in other bases."""
        weights = self.weights()
        for name, new in bases.items():
            precision = (-2 * self.log_deviation(name).detach()).exp()
            carried = -0.5 * self.bases[name].carry_precision(precision, new).log()
            self.log_scale[name] = carried
            self.mean[name] = new.into(weights[name])
            self.prior[name] = new.into(self.weights_before[name])
        self.bases = bases

    def optimised(self) -> tuple[list[Tensor], list[Tensor]]:
        """Means, and what the variances of posterior and prior are made of, as fresh leaves."""
        for named in (self.mean, self.log_scale):
            for name, tensor in named.items():
                named[name] = tensor.detach().requires_grad_()
        for name, (row, column) in self.log_curvature.items():
            self.log_curvature[name] = row.detach().requires_grad_(), column.detach().requires_grad_()
        self.log_prior = self.log_prior.detach().requires_grad_()
        own = [scale for name, scale in self.log_scale.items() if name not in self.log_curvature]
        bent = [part for pair in self.log_curvature.values() for part in pair]
        return list(self.mean.values()), [*own, *bent, self.log_prior]

    def divergence(self, refit: Grid | None = None) -> Tensor:
        """KL(Q ‖ P), differentiable (`certified_kl` is the one a bound uses).

        With `refit`, λ = mean of s + (w - w₀)² in each group first: the minimum in λ, below the grid's ceiling.
        """
        sums = self._sums()
        if refit is not None:
            totals = torch.zeros_like(self.log_prior.detach())
            sizes = torch.zeros_like(totals)
            for name, (squares, _, size) in sums.items():
                totals[self.groups[name]] += squares.detach()
                sizes[self.groups[name]] += size
            self.log_prior = 0.5 * (totals / sizes).log()
            self.below_ceiling(refit)
        total = torch.zeros((), dtype=torch.float64, device="cpu")
        for name, (squares, entropy, size) in sums.items():
            log_variance = 2 * self.log_prior[self.groups[name]]
            total = total + 0.5 * (squares / log_variance.exp() - size + size * log_variance) - entropy
        return total

    def below_ceiling(self, grid: Grid) -> None:
        """The continuous surrogate of the union bound is unbounded at the ceiling, so λ stays on the grid's range."""
        with torch.no_grad():
            self.log_prior.clamp_(max=0.5 * log(grid.largest))

    def union_price(self, grid: Grid) -> Tensor:
        """Σ log(π² j²/6) with j = b log(c/λ) as a real number."""
        place = grid.precision * (log(grid.ceiling) - 2 * self.log_prior)
        total: Tensor = (2 * place.log() + log(pi**2 / 6)).sum()
        return total

    def certified_kl(self, group: int, variance: float) -> float:
        """KL(Q ‖ P) of one group at λ = variance, in float64; distances are taken in the standard basis."""
        total = 0.0
        for name, mean in self.mean.items():
            if self.groups[name] != group:
                continue
            basis = _double(self.bases[name])
            centre = basis.back(mean.detach().double(), self.shapes[name]).flatten()
            spread = (2 * self.log_deviation(name).detach().double()).exp().flatten()
            total += gaussian_kl(centre, spread, self.weights_before[name].double().flatten(), variance)
        return total

    def _sums(self) -> dict[str, tuple[Tensor, Tensor, int]]:
        """Σ s + (w - w₀)², ½ Σ log s and the number of coordinates, per parameter."""
        found = {}
        for name, mean in self.mean.items():
            log_deviation = self.log_deviation(name)
            squares = (2 * log_deviation).exp().sum() + (mean - self.prior[name]).square().sum()
            found[name] = squares.double().cpu(), log_deviation.sum().double().cpu(), mean.numel()
        return found


def _double(basis: Basis) -> Basis:
    rows, columns = (None if t is None else t.double() for t in (basis.rows, basis.columns))
    return Basis(rows, columns)
