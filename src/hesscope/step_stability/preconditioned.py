"""P^(-1/2) H P^(-1/2): curvature as the optimiser sees it."""

from __future__ import annotations

import torch
from torch import Tensor

from ..curvature import CurvatureOperator
from ..errors import refuse
from ..operators import LinearOperator
from ..operators.content import digest
from ..operators.derived import OnSameVectors
from .optimizer_state import OptimizerState
from .step_rules import TensorStep


class Preconditioned(OnSameVectors):
    """P^(-1/2) (± H + κ) P^(-1/2), with P, the rates of groups and their weight decay read from an optimiser.

    Symmetric, one product of the curvature matrix per product; stable below `state.edge`.
    """

    def __init__(self, curvature: CurvatureOperator, state: OptimizerState) -> None:
        if not isinstance(curvature, LinearOperator) or curvature.shape != (state.space.size, state.space.size):
            shape = curvature.shape if isinstance(curvature, LinearOperator) else type(curvature).__name__
            refuse(
                f"the curvature must be square over the optimiser's {state.space.size} parameters",
                f"{shape}",
                "Make both from the same problem.",
            )
        self.inner, self.state = curvature, state
        here = curvature.layout.local
        self._root = state.inverse_preconditioner.sqrt()[here, None].to(curvature.device, curvature.dtype)
        self._decay = state.coupled_decay[here, None].to(curvature.device, curvature.dtype)
        self._shift = state.decay_shift[here, None].to(curvature.device, curvature.dtype)
        self._sign = -1.0 if state.reference.maximize else 1.0
        self._matrices = [
            (place, _root_of(step, state), step.from_right, shape)
            for (_, place), step, shape in zip(state.space.slices(), state.tensors, state.space.shapes, strict=True)
            if step.matrix is not None
        ]
        if self._matrices and curvature.layout.local_size != curvature.shape[1]:
            refuse("Muon's matrices must be whole in a process", "vectors that are shared out", "Use one process.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    @property
    def fingerprint(self) -> str:
        numbers = (self._root, self._decay, self._shift, *(root for _, root, *_ in self._matrices))
        return repr(("Preconditioned", self.inner.fingerprint, digest(*numbers)))

    def root(self, block: Tensor) -> Tensor:
        """P^(-1/2) V: from the operator's vectors to directions in the parameters."""
        out: Tensor = self._root * block
        for place, matrix, from_right, shape in self._matrices:
            piece = block[place].reshape(*shape, -1)
            turned = torch.einsum("rck,cd->rdk" if from_right else "rck,dr->dck", piece, matrix.to(block))
            out[place] = turned.reshape(-1, block.shape[1])
        return out

    def _apply(self, block: Tensor) -> Tensor:
        inside = self.root(block)
        product: Tensor = self._sign * self.inner.apply(inside) + self._decay * inside
        return self.root(product).add_(self._shift * block)


def _root_of(step: TensorStep, state: OptimizerState) -> Tensor:
    """The symmetric square root of a Muon tensor's matrix."""
    assert step.matrix is not None
    values, vectors = torch.linalg.eigh(state.relative(step.rule) * step.matrix)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root
