"""A problem that follows a model while it is trained: its private copy is moved, its proofs are kept for a while."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .engines.kept import GraphSize
from .gradient_mode import differentiable, plain
from .hessian import Hessian
from .models.state import _refuse_unusable, unwrap
from .problem import Problem


class FollowingProblem:
    """The problem at the model's present weights and buffers, at the price of copying them.

    `make` builds the problem with all its checks. `problem()` afterwards only moves tensors; what was proven of the
    derivatives, and that examples do not see each other, is taken over from the weights it was proven at. `anew`, or
    a model whose tensors are no longer the same in number, shape or kind, builds it again.
    """

    def __init__(self, model: nn.Module, make: Callable[[], Problem]) -> None:
        self._model, self._make = unwrap(model), make
        self._size: GraphSize | None = None
        self._now, self._form = make(), self._form_of_model()

    def problem(self, *, anew: bool = False) -> Problem:
        """The problem here and now; the one that was returned before must not be used any more."""
        form = self._form_of_model()
        if anew or form != self._form:
            self._now, self._form, self._size = self._make(), form, None
            return self._now
        before, theirs = self._now, self._tensors()
        with differentiable(), torch.no_grad():
            for name, own in before.parameters.items():
                _refuse_unusable(name, theirs[name].detach())
                own.copy_(plain(theirs[name]))
            for name, own in before._fixed.items():
                own.copy_(plain(theirs[name]))
        self._now = before._copy()
        self._now.proofs, self._now.verdict = before.proofs, before.verdict
        if "divisible" in before.__dict__:
            self._now.__dict__["divisible"] = before.divisible
        return self._now

    def hessian(self, problem: Problem) -> Hessian:
        """Its Hessian; what a graph takes is measured once."""
        made = Hessian(problem, "kept")
        made._engine._size = self._size  # type: ignore[union-attr]
        return made

    def learn(self, hessian: Hessian) -> None:
        """Remember what the graphs of this Hessian take."""
        self._size = hessian._engine._size  # type: ignore[union-attr]

    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}

    def _form_of_model(self) -> tuple[object, ...]:
        return tuple((name, t.shape, t.dtype, t.device, t.requires_grad) for name, t in self._tensors().items())
