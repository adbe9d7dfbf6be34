"""Output-Hessian products by autodiff behind the layer, where M_u does not fit in memory or takes too many passes."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunk_run import ChunkRun
from .curvature_blocks import PositionBlock


class LazyBlock(PositionBlock):
    """M_u y by one double-backward pass through the layers behind, per vector."""

    def __init__(self, run: ChunkRun) -> None:
        super().__init__(run.patches(0))
        self.product = run.second_derivative_products(0)

    def curve(self, y: Tensor) -> Tensor:
        return torch.stack([self.product(y[:, :, j]) for j in range(y.shape[2])], 2)

    def bytes(self) -> int:
        return 0


class LazyFactors(PositionBlock):
    """Jᵀ (∂²ℓ/∂f²) J y by a forward and a backward derivative through the layers behind, per vector."""

    def __init__(self, run: ChunkRun) -> None:
        super().__init__(run.patches(0))
        self.run = run

    def curve(self, y: Tensor) -> Tensor:
        return torch.stack([self.run.gauss_newton_product(0, y[:, :, j]) for j in range(y.shape[2])], 2)

    def bytes(self) -> int:
        return 0
