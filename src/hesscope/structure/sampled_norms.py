"""Block norms from random products, with standard errors: ‖H_IJ‖_F² = E ‖H_IJ z‖² for random signs z."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..linalg.checkpoint import Arrays
from ..linalg.estimate import mean_of_squares
from ..linalg.steps import Steps
from ..operators import LinearOperator
from ..partition import Partition
from ..rng import Rng


class SampledSquares:
    """Estimates of ‖H_IJ‖² for chosen blocks J and all I, one J per step."""

    def __init__(self, operator: LinearOperator, partition: Partition, probes: int, rng: Rng, steps: Steps) -> None:
        self.operator, self.partition, self.probes, self.rng, self.steps = operator, partition, probes, rng, steps
        empty = np.zeros((partition.count, partition.count))
        self.mean = torch.from_numpy(steps.found.get("mean", empty.copy()))
        self.variance = torch.from_numpy(steps.found.get("mean variance", empty))

    def of(self, columns: Tensor) -> tuple[Tensor, Tensor, int]:
        """The estimates, their variances, and the products spent.

        A probe that lives on block J gives the whole column of blocks at the price of one product. Where I and J are
        both probed, the two independent estimates of one norm are averaged.
        """
        for block in columns.tolist()[self.steps.done("columns") :]:
            self.mean[:, block], self.variance[:, block] = self._column(block)
            self.steps.made("columns", self._state)
        mean, variance, blocks = self.mean, self.variance, self.partition.count
        probed = torch.zeros(blocks, dtype=torch.bool)
        probed[columns] = True
        both = probed[:, None] & probed[None]
        off = ~torch.eye(blocks, dtype=torch.bool)
        mean = torch.where(both, (mean + mean.T) / 2, mean + mean.T * off)
        # A diagonal block has one estimate, so averaging it with itself does not halve its variance.
        shared = torch.where(off, (variance + variance.T) / 4, variance)
        variance = torch.where(both, shared, variance + variance.T * off)
        return mean, variance, self.probes * len(columns)

    def _column(self, block: int) -> tuple[Tensor, Tensor]:
        operator, inside = self.operator, self.partition.indices(block)
        draws = torch.zeros(operator.shape[1], self.probes, dtype=operator.dtype, device=operator.device)
        generator = self.rng.child("block norms", block).torch()
        draws[inside] = torch.randint(0, 2, (len(inside), self.probes), generator=generator).to(draws) * 2 - 1
        # Processes that share the vectors draw the same ones, and hold a part each.
        image = operator.row_layout.gather(operator.apply(draws[operator.layout.local])).double().square_().cpu()
        samples = torch.zeros(self.partition.count, self.probes, dtype=torch.float64)
        mean, stderr = mean_of_squares(samples.index_add_(0, self.partition.labels, image))
        return mean, stderr**2

    def _state(self) -> Arrays:
        return {"mean": self.mean.numpy(), "mean variance": self.variance.numpy()}
