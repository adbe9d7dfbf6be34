"""Block norms from random products, with standard errors: ‖H_IJ‖_F² = E ‖H_IJ z‖² for random signs z."""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.estimate import mean_of_squares
from ..operators import LinearOperator
from ..partition import Partition
from ..rng import Rng


def sampled_squares(
    operator: LinearOperator, partition: Partition, columns: Tensor, probes: int, rng: Rng
) -> tuple[Tensor, Tensor, int]:
    """Estimates of ‖H_IJ‖² for the blocks J in `columns` and all I, their variances, and the products spent.

    A probe that lives on block J gives the whole column of blocks at the price of one product. Where I and J are both
    probed, the two independent estimates of one norm are averaged.
    """
    blocks = partition.count
    variance = torch.zeros(blocks, blocks, dtype=torch.float64)
    mean = torch.zeros_like(variance)
    labels = partition.labels
    for block in columns.tolist():
        inside = partition.indices(block)
        draws = torch.zeros(operator.shape[1], probes, dtype=operator.dtype, device=operator.device)
        signs = torch.randint(0, 2, (len(inside), probes), generator=rng.child("block norms", block).torch())
        draws[inside] = signs.to(draws) * 2 - 1
        image = operator.apply(draws).double().square_().cpu()
        samples = torch.zeros(blocks, probes, dtype=torch.float64).index_add_(0, labels, image)
        mean[:, block], stderr = mean_of_squares(samples)
        variance[:, block] = stderr**2
    probed = torch.zeros(blocks, dtype=torch.bool)
    probed[columns] = True
    both = probed[:, None] & probed[None]
    off = ~torch.eye(blocks, dtype=torch.bool)
    mean = torch.where(both, (mean + mean.T) / 2, mean + mean.T * off)
    # A diagonal block has one estimate, so averaging it with itself does not halve its variance.
    shared = torch.where(off, (variance + variance.T) / 4, variance)
    variance = torch.where(both, shared, variance + variance.T * off)
    return mean, variance, probes * len(columns)
