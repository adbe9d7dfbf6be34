"""Output-Hessian products by autodiff behind the layer, for pieces whose M_u do not fit in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from .curvature_blocks import PositionBlock
from .tapped import Tapped


class LazyBlock(PositionBlock):
    """M_u y by one double-backward pass through the layers behind, per vector."""

    def __init__(self, tapped: Tapped) -> None:
        super().__init__(tapped.seen[0].patches(tapped.examples))
        self.z = tapped.seen[0].z
        self.slope = tapped.slopes(create_graph=True)[0]

    def curve(self, y: Tensor) -> Tensor:
        out = torch.zeros_like(y)
        if self.slope.requires_grad:
            for j in range(y.shape[2]):
                (product,) = torch.autograd.grad(
                    self.slope, self.z, y[:, :, j].contiguous(), retain_graph=True, materialize_grads=True
                )
                out[:, :, j] = product
        return out

    def bytes(self) -> int:
        return 0
