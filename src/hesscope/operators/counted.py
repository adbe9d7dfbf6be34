"""Progress, budget and cost: one wrapper that counts products."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from ..arguments import need_call, need_count
from ..errors import BudgetExceeded
from .base import LinearOperator
from .derived import OnSameVectors
from .given import as_operator
from .layout import Layout

if TYPE_CHECKING:
    from ..results.spectra import Estimate
    from ..rng import Rng


# Told of a stage and of how many products it may take, it gives what is told of each: the count and the seconds so far.
Watch = Callable[[str, int], Callable[[int, float], None]]


class Counted(OnSameVectors):
    """The same operator, counting products; `on_product(count, seconds)` reports, `budget` stops.

    Every algorithm wraps its operator with `Counted.of`, so a caller who wants progress or a budget wraps it first:
    `eigenpairs(Counted(H, on_product=bar.update), k=10)`.
    """

    def __init__(
        self,
        inner: LinearOperator,
        budget: int | None = None,
        on_product: Callable[[int, float], None] | None = None,
    ) -> None:
        if budget is not None:
            need_count("budget", budget, 0, "Pass how many products may be spent, or leave it out.")
        need_call("on_product", on_product, "It is called with the products and seconds so far.")
        self.inner, self.budget, self.on_product = as_operator(inner), budget, on_product
        self.symmetric = self.inner.symmetric
        self.count = 0
        self.started = time.perf_counter()

    @staticmethod
    def of(operator: LinearOperator) -> Counted:
        """The operator itself if it counts already."""
        return operator if isinstance(operator, Counted) else Counted(operator)

    @property
    def shape(self) -> tuple[int, int]:
        return self.inner.shape

    @property
    def row_layout(self) -> Layout:
        return self.inner.row_layout

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def known_trace(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        return self.inner.known_trace(tol, rng, max_products)

    def known_diagonal(self, tol: float, rng: Rng, max_products: int | None) -> Estimate | None:
        return self.inner.known_diagonal(tol, rng, max_products)

    def _apply(self, block: Tensor) -> Tensor:
        self._spend(block.shape[1])
        out = self.inner.apply(block)
        self._report()
        return out

    def _apply_adjoint(self, block: Tensor) -> Tensor:
        self._spend(block.shape[1])
        out = self.inner._apply_adjoint(block)
        self._report()
        return out

    def _spend(self, products: int) -> None:
        if self.budget is not None and self.count + products > self.budget:
            raise BudgetExceeded(
                f"the budget must cover the work; {self.count} of {self.budget} products are spent and {products} more "
                "are needed. Raise the budget, or accept a larger tolerance."
            )
        self.count += products

    def _report(self) -> None:
        if self.on_product is not None:
            self.on_product(self.count, time.perf_counter() - self.started)
