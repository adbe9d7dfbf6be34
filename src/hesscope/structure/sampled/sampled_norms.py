"""Block norms from random products, with standard errors: ‖H_IJ‖_F² = E ‖H_IJ z‖² for z with E[z zᵀ] = I."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ...linalg.estimates.estimate import squares_stderr
from ...linalg.resuming.checkpoint import Arrays
from ...linalg.resuming.steps import Steps
from ...operators import LinearOperator
from ...partition import Partition
from ...rng import Rng

_BOUND = 4.0  # samples that know no more of a spread than what it is at most: one draw serves a whole column of blocks


class SampledSquares:
    """Estimates of ‖H_IJ‖² for chosen blocks J and all I, one J per step; exact where J has no more columns than probes."""

    def __init__(self, operator: LinearOperator, partition: Partition, probes: int, rng: Rng, steps: Steps) -> None:
        self.operator, self.partition, self.probes, self.rng, self.steps = operator, partition, probes, rng, steps
        empty = np.zeros((partition.count, partition.count))
        self.mean = torch.from_numpy(steps.found.get("mean", empty.copy()))
        self.spread = torch.from_numpy(steps.found.get("spread", empty))

    def of(self, columns: Tensor) -> tuple[Tensor, Tensor, int]:
        """The estimates, their variances, and the products spent.

        A probe that lives on block J gives the whole column of blocks at the price of one product. Where I and J are
        both probed, the exact one of the two estimates of a norm is taken, or the mean of two that are independent; these
        know twice as much of their spread, also by how far they are apart.
        """
        for block in columns.tolist()[self.steps.done("columns") :]:
            self.mean[:, block], self.spread[:, block] = self._column(block)
            self.steps.made("columns", self._state)
        rank = torch.zeros(
            self.partition.count, dtype=torch.long, device="cpu"
        )  # 2: known exactly, 1: sampled, 0: not asked for
        rank[columns] = 1 + (self.partition.sizes[columns] <= self.probes).long()
        own, other = rank[None], rank[:, None]
        share = torch.where(own > other, 1.0, torch.where(own == other, 0.5, 0.0)).double()
        mean, spread = share * self.mean, share * self.spread
        mean, spread = mean + mean.T, spread + spread.T
        few = self.probes - 1
        once = squares_stderr(mean, spread, self.probes, few, _BOUND)
        # A diagonal block has one estimate, which its own mirror image does not improve, from draws of its own.
        once.diagonal().copy_(squares_stderr(mean.diagonal(), spread.diagonal(), self.probes, few))
        freedom = 2 * self.probes - 1
        apart = (self.mean - self.mean.T).square() * self.probes / 2
        twice = squares_stderr(mean, ((freedom - 1) * spread + apart) / freedom, 2 * self.probes, freedom, _BOUND)
        both = (own == 1) & (other == 1)
        both.fill_diagonal_(False)
        variance = torch.where(torch.maximum(own, other) == 1, torch.where(both, twice, once).square(), 0.0)
        return mean, variance, products_of(self.partition, columns, self.probes)

    def _column(self, block: int) -> tuple[Tensor, Tensor]:
        operator, inside = self.operator, self.partition.indices(block)
        size, exact = len(inside), len(inside) <= self.probes
        draws = torch.zeros(operator.shape[1], size if exact else self.probes, dtype=operator.dtype, device="cpu")
        draws[inside] = (
            torch.eye(size, dtype=draws.dtype, device="cpu") if exact else self._drawn(block, size).to(draws)
        )
        draws = draws.to(operator.device)
        # Processes that share the vectors draw the same ones, and hold a part each.
        image = operator.row_layout.gather(operator.apply(draws[operator.layout.local])).double().square_().cpu()
        samples = torch.zeros(self.partition.count, draws.shape[1], dtype=torch.float64, device="cpu")
        samples.index_add_(0, self.partition.labels, image)
        if exact:
            return samples.sum(1), torch.zeros(len(samples), dtype=torch.float64, device="cpu")
        return samples.mean(1), samples.var(1)

    def _drawn(self, block: int, size: int) -> Tensor:
        """Directions of length √size, all equally likely.

        Random signs would repeat themselves where few columns matter (dead inputs), and samples that are equal by
        chance find no spread: up to 63 % of two were wrong, and sure of it.
        """
        generator = self.rng.child("block norms", block).torch()
        normal = torch.randn(size, self.probes, generator=generator, dtype=torch.float64, device="cpu")
        lengths: Tensor = torch.linalg.vector_norm(normal, dim=0)
        return normal * (math.sqrt(size) / lengths)

    def _state(self) -> Arrays:
        return {"mean": self.mean.numpy(), "spread": self.spread.numpy()}


def products_of(partition: Partition, columns: Tensor, probes: int) -> int:
    """What these columns of blocks take."""
    return int(partition.sizes[columns].clamp_max(probes).sum())
