"""Which matrix: a problem (then its Hessian), or an operator; what is known about its structure goes along."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from ..curvature import CurvatureOperator, GaussNewton, Hessian, Problem
from ..errors import refuse
from ..operators import LinearOperator
from ..operators.given import MatrixName
from ..partition import Grouping, Partition, as_partition


@dataclass(frozen=True, eq=False)
class MatrixSource:
    """A symmetric matrix: H or G of a problem, whose structure is known, or any operator, known by its products."""

    name: str
    problem: Problem | None
    operator: LinearOperator | None  # None for H and G, which are made the way that suits

    @property
    def size(self) -> int:
        if self.operator is not None:
            return self.operator.shape[0]
        assert self.problem is not None
        return self.problem.space.size

    def products(self) -> LinearOperator:
        """The operator to multiply with."""
        return self._products

    @cached_property
    def _products(self) -> LinearOperator:
        if self.operator is not None:
            return self.operator
        assert self.problem is not None
        return Hessian(self.problem, method="batched") if self.name == "hessian" else GaussNewton(self.problem)

    def need_right(self) -> None:
        """Refuse derivatives that are wrong."""
        operator = self.products()
        if isinstance(operator, CurvatureOperator):
            operator.need_right()

    def verified(self) -> str:
        """What is known of this matrix, for the record of results."""
        return self.products().verified

    def partition(self, given: Partition | Grouping) -> Partition:
        """A partition of this matrix's rows, checked."""
        if self.problem is not None:
            return as_partition(given, self.problem)
        if not isinstance(given, Partition):
            refuse(
                "blocks by kind need the problem that a matrix belongs to",
                f"{given!r} for {self.operator!r}",
                "Pass a Partition, or a curvature operator of a whole problem: hs.Fisher(problem), hs.Hessian(problem.only('...')).",
            )
        if len(given.labels) != self.size:
            refuse(
                f"a partition must cover the {self.size} rows of the matrix",
                f"one of {len(given.labels)} parameters",
                "Make it from the same problem.",
            )
        return given


def source_of(given: Problem | LinearOperator, matrix: MatrixName | None = None) -> MatrixSource:
    """A problem with the name of its matrix ("hessian" by default), or an operator."""
    if matrix is not None and matrix not in get_args(MatrixName):
        refuse("matrix must be 'hessian' or 'gauss_newton'", f"{matrix!r}", "Or pass an operator: hs.Fisher(problem).")
    if isinstance(given, Problem):
        return MatrixSource(matrix or "hessian", given, None)
    if not isinstance(given, LinearOperator):
        refuse(
            "a matrix is given as a Problem or an operator",
            f"{type(given).__name__}",
            "Pass hs.Problem.of(model, loss, data), or an operator such as hs.GaussNewton(problem).",
        )
    if matrix is not None:
        refuse("matrix= goes with a problem", f"matrix={matrix!r} and {given!r}", "Leave matrix out.")
    if not given.symmetric or given.shape[0] != given.shape[1]:
        refuse("blocks need a square, symmetric operator", f"{given!r}", "Symmetrise it as 0.5 * (A + A.T).")
    whole = isinstance(given, Hessian | GaussNewton) and given.rows == given.problem.space and not given.unchecked
    if whole and type(given) is Hessian:
        return MatrixSource("hessian", given.problem, None)
    if whole and isinstance(given, GaussNewton) and given._is_gauss_newton:
        return MatrixSource("gauss_newton", given.problem, None)
    problem = _problem_of(given)
    fits = problem is not None and problem.space.size == given.shape[0]
    return MatrixSource(type(given).__name__.lower(), problem if fits else None, given)


def _problem_of(op: Any) -> Problem | None:
    """The problem behind an operator, a sum, a multiple or a wrapper of operators."""
    own = getattr(op, "problem", None)
    if isinstance(own, Problem):
        return own
    inner = [*getattr(op, "parts", ()), *([op.inner] if isinstance(getattr(op, "inner", None), LinearOperator) else [])]
    return next((found for part in inner if (found := _problem_of(part)) is not None), None)
