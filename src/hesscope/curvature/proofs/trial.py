"""One trial of torch's derivatives: a point, a direction, and how far derivatives and differences lie apart there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, ulp
from typing import Any

import torch
from torch import Tensor

from ...rng import Rng
from ..engines.backward import jacobian_product, noise_like, pull_back, size_of
from ..losses.base import OutputLoss
from ..models.evaluation import gradient_of, value_of
from ..problem import Problem
from .differences import STEPS, Parts, best_gap

TOLERANCE = 1e-5
_DISPLACEMENT = 1e-3  # from θ, relative to each tensor: off the kinks that zero biases and zero inputs sit on


@dataclass(frozen=True)
class Precision:
    """What differences can show in one floating-point type."""

    name: str
    steps: tuple[float, ...]
    rounding: float
    tolerance: float


FLOAT64 = Precision("float64", STEPS, ulp(1.0), TOLERANCE)
# Of networks that do not run in float64 at all; only gross errors show.
FLOAT32 = Precision("float32", (1e-3, 1e-4, 1e-2, 3e-2), 1.2e-7, 5e-2)


class Trial:
    """A point near θ at which no unit sits on a kink, and a direction; both in proportion to the size of each tensor.

    Vectors are lists of tensors, as they come: of a large network each pass over all of them costs as much as a pass of
    the few examples through it. `constant`: rows that torch does not differentiate, by name; they neither move nor count.
    """

    def __init__(
        self,
        problem: Problem,
        batches: Sequence[Any],
        constant: Mapping[str, set[int]],
        index: int,
        precision: Precision,
    ) -> None:
        rng = Rng(0).child("derivative proof", index)
        self.problem, self.batches, self.constant, self.precision = problem, list(batches), constant, precision
        own = {name: tensor.to(problem.dtype) for name, tensor in problem.parameters.items()}
        self.scales = [float(size_of(tensor)) for tensor in own.values()]
        self.theta, self.v = [], []
        for (name, tensor), scale in zip(own.items(), self.scales, strict=True):
            self.theta.append(noise_like(rng.child("point", name), tensor).mul_(_DISPLACEMENT * scale).add_(tensor))
            self.v.append(self._varying(name, noise_like(rng.child("direction", name), tensor).mul_(scale)))

    def on(self, batches: list[Any]) -> Trial:
        """The same point and direction on other data."""
        trial = object.__new__(Trial)
        trial.__dict__ = {**self.__dict__, "batches": batches}
        return trial

    def hessian_gap(self) -> float:
        """∇L against differences of L, H v by double backward against differences of ∇L, and ∇L as a graph against ∇L."""
        precision, leaves = self.precision, self._leaves(0.0)
        graphs = [self.problem.batch_gradient(batch, leaves, create_graph=True) for batch in self.batches]
        gradient = self._total(graphs)
        slope = torch.stack([(g.reshape(-1) @ d.reshape(-1)) for g, d in zip(gradient, self.v, strict=True)])
        # Of Σ g v for independent v: what the terms of the slope amount to before they cancel.
        size = hypot(*(s * float(torch.linalg.vector_norm(g)) for s, g in zip(self.scales, gradient, strict=True)))
        known: dict[float, Parts] = {}  # gradients at the first step, which mostly serves both comparisons

        def loss(step: float) -> Parts:
            if abs(step) != precision.steps[0]:
                return [self._loss(step)]
            value, known[step] = self._loss_and_gradient(step)
            return [value]

        def gradients(step: float) -> Parts:
            return known.pop(step) if step in known else self._loss_and_gradient(step)[1]

        first = best_gap(
            loss, [slope.double().sum().reshape(1)], steps=precision.steps, rounding=precision.rounding, size=size
        )
        if first > precision.tolerance:
            return first
        pulled = [self._pulled(graph, list(leaves.values())) for graph in graphs]
        graphs.clear()
        second = best_gap(
            gradients, self._total(pulled), gradient, self.scales, steps=precision.steps, rounding=precision.rounding
        )
        return max(first, second)

    def jacobian_gap(self) -> float:
        """J v against differences of the outputs f, Jᵀ against J, and the loss's curvature against those of ∂ℓ/∂f."""
        precision, leaves = self.precision, self._leaves(0.0)
        pushed, bent, mismatch = [], [], 0.0
        for index, batch in enumerate(self.batches):
            terms = self.problem.evaluate(batch, leaves)
            assert isinstance(terms, OutputLoss)
            u = noise_like(Rng(0).child("output", index), terms.f)
            Jv, Jtu = jacobian_product(terms, leaves, self.v, u)
            pushed.append(Jv.reshape(-1))
            bent.append(terms.curvature(Jv).reshape(-1))
            other = sum(float((g.detach() * d).sum()) for g, d in zip(Jtu, self.v, strict=True) if g is not None)
            mismatch = max(mismatch, abs(float((u * Jv).sum()) - other) / max(float((u * Jv).norm()), 1e-300))
        if mismatch > precision.tolerance:
            return mismatch
        steps, rounding = precision.steps, precision.rounding
        known: dict[float, tuple[Tensor, Tensor]] = {}

        def rows(step: float) -> tuple[Tensor, Tensor]:
            if step not in known:
                known[step] = self._outputs(step)
            return known[step]

        first = best_gap(lambda h: rows(h)[:1], [torch.cat(pushed)], steps=steps, rounding=rounding)
        second = best_gap(lambda h: rows(h)[1:], [torch.cat(bent)], steps=steps, rounding=rounding)
        return max(first, second, mismatch)

    def _at(self, step: float) -> dict[str, Tensor]:
        moved = [torch.add(t, d, alpha=step) for t, d in zip(self.theta, self.v, strict=True)] if step else self.theta
        own = self.problem.parameters
        return {name: tensor.to(own[name].dtype) for name, tensor in zip(own, moved, strict=True)}

    def _leaves(self, step: float) -> dict[str, Tensor]:
        return {name: tensor.detach().requires_grad_() for name, tensor in self._at(step).items()}

    def _loss(self, step: float) -> Tensor:
        parameters = self._at(step)
        return self._number(value_of(self.problem.evaluate(batch, parameters)) for batch in self.batches)

    def _loss_and_gradient(self, step: float) -> tuple[Tensor, Parts]:
        """By one pass, through the plain backward pass that no graph is kept of."""
        leaves, values, found = self._leaves(step), [], []
        for batch in self.batches:
            terms = self.problem.evaluate(batch, leaves)
            values.append(value_of(terms))
            found.append(gradient_of(terms, leaves, create_graph=False, through_loss=True))
        return self._number(values), self._total(found)

    def _outputs(self, step: float) -> tuple[Tensor, Tensor]:
        """f, and ∂ℓ/∂f."""
        parameters = self._at(step)
        terms = [self.problem.evaluate(batch, parameters) for batch in self.batches]
        rows = [one for one in terms if isinstance(one, OutputLoss)]
        outputs, slopes = ([one.f.detach() for one in rows], [one.output_gradient() for one in rows])
        return torch.cat([f.reshape(-1) for f in outputs]), torch.cat([g.reshape(-1) for g in slopes])

    def _pulled(self, gradients: Sequence[Tensor | None], leaves: list[Tensor]) -> Sequence[Tensor | None]:
        """H v of one batch, from the graph of its gradient."""
        live = [(g, d) for g, d in zip(gradients, self.v, strict=True) if g is not None and g.requires_grad]
        if not live:
            return [None] * len(leaves)
        return pull_back([g for g, _ in live], leaves, [d.to(g) for g, d in live], keep=False)

    def _number(self, values: Iterable[float]) -> Tensor:
        return torch.tensor([sum(values)], dtype=torch.float64, device=self.problem.device)

    def _total(self, found: Iterable[Sequence[Tensor | None]]) -> list[Tensor]:
        """The sum over batches, zero in rows that torch holds constant; nothing that was given is changed."""
        totals: list[Tensor | None] = [None] * len(self.theta)
        for one in found:
            for index, part in enumerate(one):
                if part is not None:
                    here = totals[index]
                    totals[index] = part.detach().to(self.theta[index].dtype) if here is None else here + part.detach()
        whole = [torch.zeros_like(t) if part is None else part for t, part in zip(self.theta, totals, strict=True)]
        return [self._varying(name, part) for name, part in zip(self.problem.parameters, whole, strict=True)]

    def _varying(self, name: str, part: Tensor) -> Tensor:
        if name not in self.constant:
            return part
        part = part.clone()
        part[list(self.constant[name])] = 0
        return part
