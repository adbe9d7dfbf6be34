"""Hessian products by double backward through a kept gradient graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from torch import Tensor

from ..errors import refuse
from ..operators import FiniteDifferenceHessian, Layout
from ..operators.columns import by_columns
from ..operators.finite import need_finite
from ..results.spectra import Estimate
from ..rng import Rng
from ..space import ParameterSpace
from .content import content_of
from .cutting import combined
from .distributed import ShardedLayout
from .engines.graphs import GradientGraphs
from .engines.spread_graphs import SpreadGraphs
from .given_problem import need_problem
from .gradient_mode import differentiable
from .of_problem import OfProblem
from .problem import Problem
from .proofs.derivatives import Proof, prove_hessian, prove_jacobian

ProductMethod = Literal["auto", "kept", "batched", "half"]


class CurvatureOperator(OfProblem):
    """A square matrix over the problem's parameters, or a block of it, summed over data and scaled as the loss is."""

    def __init__(self, problem: Problem, *, unchecked: bool = False) -> None:
        self.problem, self.unchecked = need_problem(problem, in_parts=True), unchecked
        self.rows = self.columns = problem.space

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        """Σ_batches A[rows, columns] v for vectors as rows `(k, n)`, each in one piece; subclasses define it."""
        raise AssertionError("operators define _sum_products")

    def proofs(self) -> tuple[Proof, ...]:
        """What was proven of the derivatives that this matrix is made of; found once per problem."""
        raise AssertionError("operators define proofs")

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.columns.size

    @property
    def layout(self) -> Layout:
        return ShardedLayout.here(self.columns.size) if self.problem.distributed else Layout(self.columns.size)

    @property
    def row_layout(self) -> Layout:
        return ShardedLayout.here(self.rows.size) if self.problem.distributed else Layout(self.rows.size)

    @property
    def verified(self) -> str:
        """What is known of these products, for the record of results: by hs.check, or by the proof of the first one."""
        how = [combined(self.problem)] if combined(self.problem) else []
        if self.problem.verdict is not None:
            return "; ".join([str(self.problem.verdict), *how])
        found = "; ".join([*(str(proof) for proof in self.proofs()), *how])
        return f"UNCHECKED as asked for; {found}" if self.unchecked else found

    @property
    def product_error(self) -> float:
        """What the precision inside the network does to products, where it is lower than that of vectors."""
        return 0.0 if self.unchecked else max(proof.product_error for proof in self.proofs())

    def need_right(self) -> None:
        """Refuse derivatives that are wrong, unless they were asked for as they are."""
        if not self.unchecked:
            for proof in self.proofs():
                proof.need_right()

    @property
    def fingerprint(self) -> str:
        """The problem to the bit, the kind of matrix, and the parameters of its rows and columns."""
        return repr((type(self).__qualname__, self.rows.names, self.columns.names, content_of(self.problem)))

    def block(self, rows: str | list[str], columns: str | list[str] | None = None) -> CurvatureOperator:
        """The block of the parameters that `rows` (and `columns`) select: its products cost less than the whole's."""
        return self.restricted(self.rows.select(rows), None if columns is None else self.columns.select(columns))

    def restricted(self, rows: ParameterSpace, columns: ParameterSpace | None = None) -> CurvatureOperator:
        """The block of exactly these parameters, on the same engine."""
        part: CurvatureOperator = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part.rows, part.columns = rows, rows if columns is None else columns
        part.symmetric = part.rows == part.columns
        return part

    def _apply(self, block: Tensor) -> Tensor:
        return self._scaled(self.columns, self.rows, block)

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        return self._scaled(self.rows, self.columns, block)

    def _scaled(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        scale = self.problem.scale  # first, as it refuses losses that are not finite
        self.need_right()
        with differentiable():
            out = self._total(columns, rows, block)
        out = need_finite(out.mul_(scale), f"products of {self!r}", self.problem._anywhere)
        return out.T

    def _total(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        """The sum over all processes, of which each has its part: `(n, k)` to `(k, m)`."""
        if not self.problem.distributed:
            return self._sum_products(columns, rows, by_columns(block).T)
        whole = ShardedLayout.here(columns.size).gather(block)
        out = self._sum_products(columns, rows, by_columns(whole).T)
        del whole
        return ShardedLayout.here(rows.size).sum_of_wholes(out)


class Hessian(CurvatureOperator):
    """H = ∂²L/∂θ², exactly, of the loss the user trains.

    `method`: "kept" (double backward, graph reused), "batched" (the same for many vectors at once), "half"
    (graphs kept with half of their digits, bfloat16 for float32: half of the memory, and error bars that hold what it
    does to products), or "auto": what hs.check found fastest among the right ones, else "kept".
    The first product proves torch's derivatives of this network on a few examples and refuses wrong ones; with
    `unchecked` they are used as they are, and every result says so.
    """

    _through_loss = True

    def __init__(self, problem: Problem, method: ProductMethod = "auto", *, unchecked: bool = False) -> None:
        super().__init__(problem, unchecked=unchecked)
        if method not in get_args(ProductMethod):
            refuse("method must be auto, kept, batched or half", f"{method!r}", "Leave it at 'auto'.")
        if method == "half" and problem.distributed:
            refuse("graphs with half of their digits must be of one process", "several", "Leave it at 'auto'.")
        if method == "auto":
            method = "kept" if problem.verdict is None else problem.verdict.method
        self.method = method
        self._engine: GradientGraphs | SpreadGraphs
        if problem.spread is not None and method == "kept":
            self._engine = SpreadGraphs(problem, self._through_loss)
        else:
            self._engine = GradientGraphs(problem, self._through_loss, method)

    @staticmethod
    def from_gradient(
        gradient: Callable[[Any], Any], at: Tensor | Mapping[str, Tensor], *, noise: float | None = None
    ) -> FiniteDifferenceHessian:
        """A finite difference of a gradient function, for code that cannot be differentiated twice: no derivative.

        `gradient(theta)` returns the gradient of the loss at any point near `at`: flat tensors, or dicts by name. The
        step of each product is chosen from the noise of the function (measured, unless `noise` gives its standard
        deviation as a length), and errors are estimated: `.product_error`, and in the results of every algorithm.
        """
        return FiniteDifferenceHessian(gradient, at, noise=noise)

    @property
    def preferred_block(self) -> int:
        return 8 if self.method == "batched" else 1

    def known_trace(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        """tr H from per-example gradients, where the network has the structure."""
        from ..layers.known_traces import known_trace

        return known_trace(self, tol, rng, max_products, with_functional=True)

    def known_diagonal(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        """diag H from per-example gradients, where the network has the structure."""
        from ..layers.known_traces import known_diagonal

        return known_diagonal(self, max_products, with_functional=True)

    def proofs(self) -> tuple[Proof, ...]:
        return (prove_hessian(self.problem),)

    @property
    def verified(self) -> str:
        kept = f"; graphs kept with half of their digits: products within {self.product_error:.1e}"
        return super().verified + (kept if self.method == "half" else "")

    @property
    def product_error(self) -> float:
        """Of the precision inside the network, and of graphs that are kept with half of it."""
        own = super().product_error
        if self.method != "half":
            return own
        assert isinstance(self._engine, GradientGraphs)
        with differentiable():
            return own + self.problem.scale * self._engine.half_error

    def restricted(self, rows: ParameterSpace, columns: ParameterSpace | None = None) -> CurvatureOperator:
        part = super().restricted(rows, columns)
        assert isinstance(part, Hessian)
        if isinstance(part._engine, SpreadGraphs) and not part.rows == part.columns == self.problem.space:
            part._engine = GradientGraphs(self.problem, self._through_loss)  # of whole parameters
        return part

    def _total(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        if isinstance(self._engine, SpreadGraphs):
            return self._engine.products(by_columns(block).T)
        return super()._total(columns, rows, block)

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        assert not isinstance(self._engine, SpreadGraphs)
        return self._engine.products(columns, rows, block)


class FunctionalHessian(Hessian):
    """R = Σ_c ∂L/∂f_c ∂²f_c/∂θ² = H - G: what the Gauss-Newton matrix leaves out, computed directly."""

    _through_loss = False

    def __init__(self, problem: Problem, *, unchecked: bool = False) -> None:
        need_problem(problem, in_parts=True).need_outputs("the functional Hessian")
        super().__init__(problem, method="kept", unchecked=unchecked)

    def proofs(self) -> tuple[Proof, ...]:
        return prove_hessian(self.problem), prove_jacobian(self.problem)

    def known_trace(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        return None  # what the structure knows is the Gauss-Newton part

    def known_diagonal(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        return None
