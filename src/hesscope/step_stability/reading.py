"""One reading of the edge: what a monitor calls at every checkpoint, from where the last one ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..curvature import CurvatureOperator, GaussNewton, Hessian, Problem
from ..curvature.given_problem import need_problem
from ..errors import refuse
from ..linalg import eigenpairs
from ..measure import Array
from ..operators.autocast import own_types
from ..operators.given import MatrixName
from ..results.spectra import Eigenpairs
from ..results.stability import EdgeReading
from ..rng import Rng
from .optimizer_state import OptimizerState, read_optimizer
from .preconditioned import Preconditioned


@own_types()
def read_edge(
    problem: Problem,
    optimizer: Any,
    *,
    k: int = 1,
    matrix: MatrixName = "hessian",
    start: EdgeReading | Tensor | Array | None = None,
    tol: float = 1e-2,
    max_products: int | None = None,
    rng: Rng | int | None = None,
    names: Sequence[str] | None = None,
    kind: str | None = None,
) -> EdgeReading:
    """The k largest eigenvalues of the curvature as `optimizer` sees it, and the edge of that optimiser.

    problem: at the optimiser's present parameters, for example `problem.at(model.state_dict())`.
    optimizer: a torch optimiser, several in a list, a state dict, or an `OptimizerState` already read.
    start: the reading before (or its `top.vectors`), which saves most products. tol, max_products, rng: as in
    `eigenpairs`; when the budget runs out, `top.converged` says so and `ratio_error` how far off it may be.
    """
    state = as_state(problem, optimizer, names, kind)
    operator = Preconditioned(curvature_of(problem, matrix), state)
    before = start.top.vectors if isinstance(start, EdgeReading) else start
    top = eigenpairs(operator, k, tol=tol, start=before, max_products=max_products, rng=rng)
    return reading_of(state, matrix, top)


def reading_of(state: OptimizerState, matrix: MatrixName, top: Eigenpairs) -> EdgeReading:
    """Eigenpairs of a `Preconditioned` operator beside the edge of its optimiser."""
    rule = state.reference
    return EdgeReading(
        state.name, matrix, top, rule.rate, state.edge, state.formula, rule.response, rule.decoupled_decay
    )


def as_state(problem: Problem, optimizer: Any, names: Sequence[str] | None, kind: str | None) -> OptimizerState:
    """An optimiser as read, or read now."""
    if not isinstance(optimizer, OptimizerState):
        return read_optimizer(problem, optimizer, names=names, kind=kind)
    if optimizer.space != need_problem(problem).space:
        refuse(
            "the optimiser's state must be read for the parameters of this problem",
            f"{optimizer.space.size} others",
            "Use read_optimizer(problem, optimizer).",
        )
    return optimizer


def curvature_of(problem: Problem, matrix: MatrixName) -> CurvatureOperator:
    """H or G of the problem."""
    if matrix not in ("hessian", "gauss_newton"):
        refuse("matrix must be hessian or gauss_newton", f"{matrix!r}", "The edge is that of H; G is its stable part.")
    return Hessian(problem) if matrix == "hessian" else GaussNewton(problem)
