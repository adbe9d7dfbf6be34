"""The Fisher matrix: second moments of the gradients of the log-likelihood, exact, sampled or of the data."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from ..arguments import need_count
from ..errors import refuse
from ..rng import Rng
from ..space import ParameterSpace
from .gauss_newton import GaussNewton
from .losses.base import OutputLoss
from .losses.row_draws import RowDraws
from .problem import Problem, ScalarLoss
from .processes import from_every


class Fisher(GaussNewton):
    """F = Σ_r w_r E[s_r s_rᵀ], s_r the gradient of row r's log-likelihood; a row is what the loss counts, w_r times.

    kind="exact": expectation over the model's own targets, which for cross-entropy, squared error and binary
    cross-entropy of logits is the Gauss-Newton matrix. kind="mc": the same with `samples` drawn targets per row, fixed by
    `rng` and the row's place in the data, however it is batched. Both are refused for other losses, whose Gauss-Newton
    matrix is another one. kind="empirical": the data's targets, for any loss of outputs.
    """

    def __init__(
        self,
        problem: Problem,
        kind: Literal["mc", "empirical", "exact"] = "mc",
        *,
        samples: int = 1,
        rng: Rng | int | None = None,
        unchecked: bool = False,
    ) -> None:
        if kind not in ("mc", "empirical", "exact"):
            refuse("kind must be 'mc', 'empirical' or 'exact'", f"{kind!r}", "See the docstring for which is which.")
        super().__init__(problem, unchecked=unchecked)
        self.kind, self.rng = kind, Rng.of(rng)
        self.samples = need_count("samples", samples, do="One sample per row is usual.")

    @property
    def fingerprint(self) -> str:
        drawn = f"{self.samples} of {self.rng}" if self.kind == "mc" else ""
        return f"{self.kind} {drawn} {super().fingerprint}"

    @property
    def _is_gauss_newton(self) -> bool:
        return self.kind == "exact" and self._of_likelihood

    @cached_property
    def _of_likelihood(self) -> bool:
        """Asked before closed forms of the Gauss-Newton matrix stand in for this one; refused where it is another."""
        probe = self.problem.probe
        with torch.no_grad():
            for batch in probe.batches:
                _need_likelihood(probe.evaluate(batch, probe.parameters))
        return True

    @cached_property
    def _before(self) -> int:
        """Rows of the processes before this one, so that every row has draws of its own."""
        if not self.problem.distributed:
            return 0
        return sum(from_every(self._engine.rows_here())[: dist.get_rank()])

    def _sum_products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        if self.kind == "mc":
            _ = self._before  # asked by all processes together, also by those without rows
        return super()._sum_products(columns, rows, block)

    def _middle(self, rows: OutputLoss, image: Tensor, first_row: int) -> Tensor:
        if self.kind != "empirical":
            _need_likelihood(rows)
        if self.kind == "exact":
            return rows.curvature(image)
        total = torch.zeros_like(image)
        for sample in range(self.samples if self.kind == "mc" else 1):
            if self.kind == "mc":
                slope = rows.sampled_output_gradient(
                    RowDraws(self.rng.child("fisher", sample), self._before + first_row)
                )
            else:
                slope = rows.example_output_gradient()
            total += slope * (slope * image).sum(-1, keepdim=True)
        return total / (self.samples if self.kind == "mc" else 1)


def _need_likelihood(rows: OutputLoss | ScalarLoss) -> None:
    if not isinstance(rows, OutputLoss) or not rows.likelihood:
        refuse(
            "a Fisher matrix over the model's own targets needs a loss that is a known log-likelihood",
            "another loss",
            "Use cross-entropy, squared error or binary cross-entropy of logits; or hs.GaussNewton(problem); or "
            "kind='empirical'.",
        )
