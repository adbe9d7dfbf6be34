"""All block norms of a Gauss-Newton matrix at once, from random gradients: ‖G_IJ‖² = E (g_I · g'_I)(g_J · g'_J).

For independent g and g' with E[g gᵀ] = G the inner product of the blocks g_I g_Jᵀ and g'_I g'_Jᵀ has mean <G_IJ, G_IJ>.
Sums over pairs of different draws (a U-statistic) are unbiased; leaving out one draw after the other tells their error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...curvature.hessian import CurvatureOperator
from ...curvature.problem import Problem
from ...layers import facts_of
from ...linalg.estimates.estimate import student_widening
from ...memory import free_bytes
from ...partition import Partition
from ...rng import Rng
from ..source import MatrixSource
from .shared_draws import random_gradients

LEAST_DRAWS = 4
_FLOPS = 4e11
_GRAM_BYTES = 5e8
_MOST_PARTS = 64  # smaller parts gain little, and cost more for being small


def can_share(source: MatrixSource) -> bool:
    """Whether the matrix is Σ Jᵀ S Sᵀ J over data, with a factor S that is known."""
    problem = source.problem
    if problem is None or source.operator is not None or problem.distributed or source.name != "gauss_newton":
        return False
    return facts_of(problem).columns > 0


class SharedNorms:
    """Squared norms of all blocks and their variances, from `draws` backward passes over the data."""

    def __init__(self, source: MatrixSource, partition: Partition, draws: int, rng: Rng) -> None:
        operator = source.products()
        assert source.problem is not None
        assert isinstance(operator, CurvatureOperator)
        self.problem, self.partition, self.draws = source.problem, partition, draws
        self.rng = rng.child("shared block norms")
        for proof in operator.proofs():
            proof.need_right()

    def squares(self) -> tuple[Tensor, Tensor]:
        """(‖G_IJ‖², its variance), each `(B, B)`."""
        order = torch.argsort(self.partition.labels, stable=True)
        parts = number_of_parts(self.problem, self.partition.count, self.draws)
        gradients = random_gradients(self.problem, self.draws, parts, order, self.rng)
        mean, variance = leave_one_out(self._pair_sums(gradients))
        scale = self.problem.scale**2
        return mean * scale, variance * scale**2

    def _pair_sums(self, gradients: Tensor) -> Tensor:
        """R_s = Σ_(t≠s) Σ_(parts) (g_sI · g_tI)(g_sJ · g_tJ) for every draw s: `(draws, B, B)`."""
        blocks, (count, parts, _) = self.partition.count, gradients.shape
        sums = torch.zeros(count, blocks, blocks, dtype=torch.float64, device="cpu")
        for s in range(count - 1):
            for t, gram in enumerate(self._grams(gradients, s).unbind(1), s + 1):
                flat = gram.reshape(blocks, parts * parts)
                pair = (flat @ flat.T).double()
                sums[s] += pair
                sums[t] += pair
        return sums

    def _grams(self, gradients: Tensor, s: int) -> Tensor:
        """Inner products of the parts of draw s with those of later draws, block by block: `(B, later, parts, parts)`."""
        sizes = self.partition.sizes.tolist()
        later, parts = len(gradients) - s - 1, gradients.shape[1]
        out = gradients.new_empty(len(sizes), later, parts, parts)
        pieces = zip(*(torch.split(g, sizes, -1) for g in (gradients[s], gradients[s + 1 :])), strict=True)
        for block, (mine, theirs) in enumerate(pieces):
            out[block] = (theirs.reshape(later * parts, -1) @ mine.T).view(later, parts, parts)
        return out


def number_of_parts(problem: Problem, blocks: int, draws: int) -> int:
    """Parts of the data with draws of their own: more are more accurate, for the same passes over the data."""
    width = torch.finfo(problem.dtype).bits // 8
    size, limit = problem.space.size, min(problem.memory_budget.limit, free_bytes(torch.device("cpu")) / 4)
    by_memory = limit / (draws * size * width)
    by_grams = (_GRAM_BYTES / (width * blocks * draws)) ** 0.5
    by_flops = (_FLOPS / (draws**2 * (blocks**2 + size))) ** 0.5
    return max(1, int(min(by_memory, by_grams, by_flops, _MOST_PARTS)))


def leave_one_out(sums: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over pairs of different draws from R_s, and the jackknife's variance of it, widened for few draws."""
    count = len(sums)
    total = sums.sum(0) / 2
    mean = total / (count * (count - 1) / 2)
    without = (total - sums) / ((count - 1) * (count - 2) / 2)
    widened = student_widening(count) ** 2
    return mean, widened * (without - mean).square().sum(0) * (count - 1) / count
