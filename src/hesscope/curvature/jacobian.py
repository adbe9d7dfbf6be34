"""The Jacobian of all outputs in all parameters, as an operator with an adjoint."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch import Tensor

from ..errors import refuse
from ..operators.columns import by_columns
from ..operators.finite import need_finite
from .content import content_of
from .engines.jacobians import JacobianGraphs
from .given_problem import need_problem
from .gradient_mode import differentiable
from .of_problem import OfProblem
from .problem import Problem
from .proofs.derivatives import prove_jacobian


class Jacobian(OfProblem):
    """J = ∂f/∂θ of every output of every row, shape `(rows x outputs, parameters)`, in the order of the data."""

    symmetric = False

    def __init__(self, problem: Problem, *, unchecked: bool = False) -> None:
        need_problem(problem).need_outputs("the Jacobian")
        if problem.distributed:
            refuse("a Jacobian lives in one process", "a distributed problem", "Use GaussNewton, which is reduced.")
        self.problem, self.unchecked = problem, unchecked
        self._engine = JacobianGraphs(problem)
        self._rows = self._engine.row_count()

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows, self.problem.space.size

    @property
    def verified(self) -> str:
        """What is known of these products, for the record of results."""
        return f"{'UNCHECKED as asked for; ' if self.unchecked else ''}{prove_jacobian(self.problem)}"

    @property
    def fingerprint(self) -> str:
        return repr(("Jacobian", content_of(self.problem)))

    def _apply(self, block: Tensor) -> Tensor:
        with self._proven():
            return self._finite(self._engine.push(self.problem.space, by_columns(block).T))

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        with self._proven():
            return self._finite(self._engine.pull(self.problem.space, by_columns(block).T))

    def _finite(self, rows: Tensor) -> Tensor:
        return need_finite(rows, f"products of {self!r}").T

    def _proven(self) -> AbstractContextManager[None]:
        if not self.unchecked:
            prove_jacobian(self.problem).need_right()
        return differentiable()
