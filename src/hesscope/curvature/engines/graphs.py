"""Hessian products by double backward: one backward pass through the graph of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...errors import DerivativeError
from ...rng import Rng
from ...space import ParameterSpace
from ..data import examples_in, first_examples
from ..models.evaluation import gradient_of, value_of
from ..problem import Problem
from ..proofs.faulty_modules import find_faulty_modules
from .backward import Place, place_of, pull_back, random_direction
from .given_batches import in_given_batches
from .kept import KeptGraphs
from .output_head import head_of

_COLUMNS = 16  # vectors at a time in a batched product
_FEW = 8  # examples on which rounding is measured
_TURNS = 3  # of a random vector towards the largest curvature


@dataclass
class TracedGradient:
    """The gradient of a batch's sum, connected to the parameters."""

    value: float
    gradients: tuple[Tensor | None, ...]
    held_bytes: int = 0


class GradientGraphs(KeptGraphs[TracedGradient]):
    """Σ_batches ∇ℓ as a graph: one backward through it is a Hessian product (double backward).

    With `through_loss=False` the slope of the loss in the outputs is a constant, and the products are those of the
    functional Hessian.
    """

    def __init__(self, problem: Problem, through_loss: bool = True, method: str = "kept") -> None:
        super().__init__(problem, half=method == "half")
        self.through_loss, self.method = through_loss, method
        self.sums: list[Tensor | Place | None] = [None] * len(self.leaves)
        self.together: bool | None = None  # whether torch takes many vectors through this graph at once

    def trace(self, batch: Any) -> TracedGradient:
        head = head_of(self.problem)
        split = None if head is None else head.evaluate(batch, self.leaves, self._file is None)
        if split is not None:
            gradients = split.gradient(self.leaves, self.through_loss)
            return TracedGradient(split.value, gradients, split.held_bytes)
        terms = self.problem.evaluate(batch, self.leaves)
        gradients = gradient_of(terms, self.leaves, create_graph=True, through_loss=self.through_loss)
        return TracedGradient(value_of(terms), gradients)

    def finish(self) -> None:
        self.sums = [g if g is None else place_of(g) for g in self.sums]

    def hold(self, graph: TracedGradient) -> None:
        self.sums = [_plus(total, g) for total, g in zip(self.sums, graph.gradients, strict=True)]

    def forget(self) -> None:
        self.sums = [None] * len(self.leaves)

    @in_given_batches
    def products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        """Σ_batches H[rows, columns] Vᵀ for vectors as rows: `(k, n)` to `(k, m)`, not yet scaled."""
        try:
            return self._products(columns, rows, block)
        except DerivativeError as error:
            named = "; ".join(find_faulty_modules(self.problem.probe)) or "no single module found"
            raise DerivativeError(
                f"every operation must have a second derivative; these have none or a wrong one: {named}. "
                "Replace the module by one of plain operations, or leave its parameters out with params=."
            ) from error

    def _products(self, columns: ParameterSpace, rows: ParameterSpace, block: Tensor) -> Tensor:
        self.build()
        if self.method != "batched" and rows == columns and self.everything_kept:
            return self._pull_all(rows, block)
        out = torch.zeros(block.shape[0], rows.size, dtype=block.dtype, device=block.device)
        if self.kept_batches:
            self._pull(self.sums, columns, rows, block, out, keep=True)
        for graph in self.rebuilt():
            self._pull(graph.gradients, columns, rows, block, out, keep=False)
        return out

    def _pull_all(self, space: ParameterSpace, block: Tensor) -> Tensor:
        """Products with everything kept. Only where a pass has ended is there room for the product in one piece, and each
        of its parts goes as soon as it has its place: beside the vectors given, about one is there at a time."""
        live, sources = self._live(self.sums, space)
        if not live:
            return torch.zeros_like(block)
        places = dict(space.slices())
        targets = [self.leaves[name] for name in space.names]
        out = torch.empty_like(block)
        for vector, row in zip(block, out, strict=True):
            cotangents = [_shaped(vector[places[n]], g, ()) for n, g in zip(live, sources, strict=True)]
            pieces = list(pull_back(sources, targets, cotangents))
            for index, place in enumerate(places.values()):
                piece, pieces[index] = pieces[index], None
                row[place] = 0 if piece is None else piece.reshape(-1)
        return out

    @property
    def half_error(self) -> float:
        """What half of the digits do to the summed product with a unit vector: counted as if it added up over all examples, twice:
        other directions may be worse."""
        worst, _, few = self._half_gaps
        return 2 * worst * sum(examples_in(one) or 1 for one in self.problem.batches) / few

    @property
    def half_share(self) -> float:
        """The same over the largest product with a unit vector that was met; 0 where all are zero."""
        worst, largest, _ = self._half_gaps
        return 2 * worst / largest if largest else 0.0

    @cached_property
    def _half_gaps(self) -> tuple[float, float, int]:
        """The largest error of a product with a unit vector on a few examples, the largest such product, and how many examples:
        in a random direction that is turned towards the largest curvature."""
        assert self._half is not None
        batch = next(iter(self.problem.batches), None)
        if batch is None:
            return 0.0, 0.0, 1
        few = first_examples(batch, _FEW) if self.problem.divisible else batch
        exact = self.trace(few).gradients
        with self._half.saving(self._own(few)):
            rounded = self.trace(few).gradients
        space, worst, largest = self.problem.space, 0.0, 0.0
        v = random_direction(self.problem, Rng(0).child("half"))[None]
        for _ in range(_TURNS):
            v = v / v.norm()
            right, found = torch.zeros_like(v), torch.zeros_like(v)
            self._pull(exact, space, space, v, right, keep=True)
            self._pull(rounded, space, space, v, found, keep=True)
            worst, largest = max(worst, float((found - right).norm())), max(largest, float(right.norm()))
            if not float(right.norm()) > 0:
                break
            v = right
        return worst, largest, examples_in(few) or 1

    def _live(
        self, gradients: Sequence[Tensor | Place | None], columns: ParameterSpace
    ) -> tuple[list[str], list[Tensor | Place]]:
        """The parameters among `columns` whose gradient depends on something, and those gradients."""
        of = {name: g for name, g in zip(self.leaves, gradients, strict=True) if g is not None and g.requires_grad}
        live = [name for name in columns.names if name in of]
        return live, [of[name] for name in live]

    def _pull(
        self,
        gradients: Sequence[Tensor | Place | None],
        columns: ParameterSpace,
        rows: ParameterSpace,
        block: Tensor,
        out: Tensor,
        keep: bool,
    ) -> None:
        live, sources = self._live(gradients, columns)
        if not live:
            return
        targets = [self.leaves[name] for name in rows.names]
        places = dict(columns.slices())
        if self.method == "batched" and block.shape[0] > 1:
            for few, totals in zip(torch.split(block, _COLUMNS), torch.split(out, _COLUMNS), strict=True):
                self._pull_together(sources, targets, [few[:, places[name]] for name in live], rows, totals)
            return
        for index, (vector, total) in enumerate(zip(block, out, strict=True)):
            cotangents = [_shaped(vector[places[n]], g, ()) for n, g in zip(live, sources, strict=True)]
            pulled = pull_back(sources, targets, cotangents, keep=keep or index + 1 < len(block))
            for (_, place), piece in zip(rows.slices(), pulled, strict=True):
                if piece is not None:
                    total[place] += piece.reshape(-1)

    def _pull_together(
        self,
        sources: list[Tensor | Place],
        targets: list[Tensor],
        pieces: list[Tensor],
        rows: ParameterSpace,
        totals: Tensor,
    ) -> None:
        """Many vectors in one backward pass, where torch can do that and does it right: tried on the first two."""
        if self.together is None:
            self.together = _same_together(sources, targets, pieces)
        count = len(totals)
        if self.together:
            cotangents = [_shaped(piece, g, (count,)) for piece, g in zip(pieces, sources, strict=True)]
            pulled = pull_back(sources, targets, cotangents, batched=True)
        else:
            alone = [[_shaped(piece[i], g, ()) for piece, g in zip(pieces, sources, strict=True)] for i in range(count)]
            each = zip(*(pull_back(sources, targets, cotangents) for cotangents in alone), strict=True)
            pulled = tuple(
                None if parts[0] is None else torch.stack([p for p in parts if p is not None]) for parts in each
            )
        for (_, place), piece in zip(rows.slices(), pulled, strict=True):
            if piece is not None:
                totals[:, place] += piece.reshape(count, -1).to(totals.dtype)


def _same_together(sources: list[Tensor | Place], targets: list[Tensor], pieces: list[Tensor]) -> bool:
    """Whether the first two vectors in one backward pass give what they give one after the other, up to rounding."""
    first, second = ([_shaped(piece[i], g, ()) for piece, g in zip(pieces, sources, strict=True)] for i in (0, 1))
    both = [torch.stack(pair) for pair in zip(first, second, strict=True)]
    try:
        together = pull_back(sources, targets, both, batched=True)
    except DerivativeError:
        return False
    alone = [pull_back(sources, targets, cotangents) for cotangents in (first, second)]
    for whole, *parts in zip(together, *alone, strict=True):
        present = [part for part in parts if part is not None]
        if whole is None or len(present) < 2:
            if present or whole is not None:
                return False
            continue
        truth = torch.stack(present).double()
        if float((whole.double() - truth).norm()) > 10 * torch.finfo(whole.dtype).eps ** 0.75 * float(truth.norm()):
            return False
    return True


def _shaped(flat: Tensor, like: Tensor | Place, lead: tuple[int, ...]) -> Tensor:
    return flat.reshape((*lead, *like.shape)).to(like.dtype)


def _plus(total: Tensor | Place | None, more: Tensor | None) -> Tensor | Place | None:
    if total is None or more is None:
        return more if total is None else total
    assert isinstance(total, Tensor)
    return total + more
