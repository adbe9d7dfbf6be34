"""One trial of torch's derivatives: a point, a direction, and how far derivatives and differences lie apart there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, ulp
from typing import Any

import torch
from torch import Tensor

from ...rng import Rng
from ..engines.backward import Place, jacobian_product, noise_like, place_of, pull_back, size_of
from ..losses.base import OutputLoss
from ..models.evaluation import gradient_of, value_of
from ..problem import Problem
from .differences import STEPS, Parts, best_gap
from .folding import LARGE, folded, folded_shape, handed_on
from .probing import give_back_of

TOLERANCE = 1e-5
_AT_ONCE = 1 << 26  # entries of a direction that is pulled back
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

    `values` are the parameters in the network's own type, `problem` evaluates it in the type of the proof. Of a large
    network there is one set of parameters at a time: points and directions are drawn when they are needed, and gradients
    are compared folded. `constant`: rows that torch does not differentiate, by name; they neither move nor count.
    """

    def __init__(
        self,
        problem: Problem,
        values: Mapping[str, Tensor],
        batches: Sequence[Any],
        constant: Mapping[str, set[int]],
        index: int,
        precision: Precision,
    ) -> None:
        self.problem, self.values, self.batches = problem, values, list(batches)
        self.constant, self.precision = constant, precision
        self._rng = Rng(0).child("derivative proof", index)
        self.scales = {name: float(size_of(tensor)) for name, tensor in values.items()}
        self._drawn: dict[tuple[str, str], Tensor] = {}

    def on(self, batches: list[Any]) -> Trial:
        """The same point and direction on other data."""
        trial = object.__new__(Trial)
        trial.__dict__ = {**self.__dict__, "batches": batches}
        return trial

    def hessian_gap(self) -> float:
        """∇L against differences of L, H v by double backward against differences of ∇L, and ∇L as a graph against ∇L."""
        precision, units = self.precision, list(self.scales.values())
        slope, size, gradient, product = self._derivatives()
        give_back_of(self.problem)
        known: dict[float, Parts] = {}  # gradients at the first step, which mostly serves both comparisons

        def loss(step: float) -> Parts:
            if abs(step) != precision.steps[0]:
                return [self._loss(step)]
            value, known[step] = self._loss_and_gradient(step)
            return [value]

        def gradients(step: float) -> Parts:
            return known.pop(step) if step in known else self._loss_and_gradient(step)[1]

        first = best_gap(loss, [slope], steps=precision.steps, rounding=precision.rounding, size=size)
        if first > precision.tolerance:
            return first
        second = best_gap(gradients, product, gradient, units, steps=precision.steps, rounding=precision.rounding)
        return max(first, second)

    def _derivatives(self) -> tuple[Tensor, float, Parts, Parts]:
        """<∇L, v>, what its terms amount to before they cancel, and ∇L and H v, folded."""
        leaves = self._leaves(0.0)
        graphs = [list(self.problem.batch_gradient(batch, leaves, create_graph=True)) for batch in self.batches]
        slope, size = torch.zeros(1, dtype=torch.float64, device=self.problem.device), 0.0
        gradient, product = self._zeros(), self._zeros()
        sources: list[list[Tensor | Place | None]] = [[] for _ in graphs]
        for index, (name, scale) in enumerate(self.scales.items()):
            live = [graph[index] for graph in graphs]
            for found, graph, part in zip(sources, graphs, live, strict=True):
                self._add(gradient, index, part)
                found.append(part if part is None else place_of(part))
                graph[index] = None  # its numbers have done their work
            parts = [part.detach() for part in live if part is not None]
            if parts:
                whole = self._varying(name, sum(parts[1:], parts[0]))
                slope += (whole.reshape(-1) @ self._direction(name).reshape(-1).to(whole)).double()
                size = hypot(size, scale * float(torch.linalg.vector_norm(whole)))  # of Σ g v for independent v
                del whole
            del live, part, parts
        with handed_on(list(leaves.values()), lambda index, part: self._add(product, index, part)):
            for found in sources:
                self._pull(found, leaves)
        return slope, size, gradient, product

    def jacobian_gap(self) -> float:
        """J v against differences of the outputs f, Jᵀ against J, and the loss's curvature against those of ∂ℓ/∂f."""
        precision, leaves = self.precision, self._leaves(0.0)
        pushed, bent, mismatch = [], [], 0.0
        v = [self._direction(name) for name in self.values]
        for index, batch in enumerate(self.batches):
            terms = self.problem.evaluate(batch, leaves)
            assert isinstance(terms, OutputLoss)
            u = noise_like(Rng(0).child("output", index), terms.f)
            Jv, Jtu = jacobian_product(terms, leaves, v, u)
            pushed.append(Jv.reshape(-1))
            bent.append(terms.curvature(Jv).reshape(-1))
            other = sum(float((g.detach() * d).sum()) for g, d in zip(Jtu, v, strict=True) if g is not None)
            mismatch = max(mismatch, abs(float((u * Jv).sum()) - other) / max(float((u * Jv).norm()), 1e-300))
            del terms, Jv, Jtu  # the graphs of a large network are not to lie beside each other
        del leaves, v
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
        found = {}
        for name in self.values:
            moved = self._point(name)
            if step:
                moved = torch.add(moved, self._direction(name), alpha=step)
            found[name] = moved.to(self.problem.parameters[name].dtype)
        return found

    def _point(self, name: str) -> Tensor:
        return self._once(
            ("point", name), lambda noise: noise.mul_(_DISPLACEMENT * self.scales[name]).add_(self.values[name])
        )

    def _direction(self, name: str) -> Tensor:
        return self._once(("direction", name), lambda noise: self._varying(name, noise.mul_(self.scales[name])))

    def _once(self, key: tuple[str, str], made_of: Callable[[Tensor], Tensor]) -> Tensor:
        """What is made of noise in the shape of a parameter; drawn again each time, where that is large."""
        found = self._drawn.get(key)
        if found is None:
            like = torch.zeros((), dtype=self.problem.dtype, device=self.problem.device).expand_as(self.values[key[1]])
            found = made_of(noise_like(self._rng.child(*key), like))
            if found.numel() < LARGE:
                self._drawn[key] = found
        return found

    def _leaves(self, step: float) -> dict[str, Tensor]:
        return {name: tensor.detach().requires_grad_() for name, tensor in self._at(step).items()}

    def _loss(self, step: float) -> Tensor:
        parameters = self._at(step)
        return self._number(value_of(self.problem.evaluate(batch, parameters)) for batch in self.batches)

    def _loss_and_gradient(self, step: float) -> tuple[Tensor, Parts]:
        """By one pass, through the plain backward pass that no graph is kept of."""
        leaves, values, found = self._leaves(step), [], self._zeros()
        for batch in self.batches:
            terms = self.problem.evaluate(batch, leaves)
            values.append(value_of(terms))
            # Not around the evaluation: a loss may differentiate inside.
            with handed_on(list(leaves.values()), lambda index, part: self._add(found, index, part)):
                gradient_of(terms, leaves, create_graph=False, through_loss=True)
        return self._number(values), found

    def _outputs(self, step: float) -> tuple[Tensor, Tensor]:
        """f, and ∂ℓ/∂f."""
        parameters = self._at(step)
        terms = [self.problem.evaluate(batch, parameters) for batch in self.batches]
        rows = [one for one in terms if isinstance(one, OutputLoss)]
        outputs, slopes = ([one.f.detach() for one in rows], [one.output_gradient() for one in rows])
        return torch.cat([f.reshape(-1) for f in outputs]), torch.cat([g.reshape(-1) for g in slopes])

    def _pull(self, gradients: Sequence[Tensor | Place | None], leaves: Mapping[str, Tensor]) -> None:
        """H v of one batch, from the graph of its gradient, to whom it is handed on; of a large network by parts of v."""
        live = [(name, g) for name, g in zip(leaves, gradients, strict=True) if g is not None and g.requires_grad]
        while live:
            some = [live.pop()]
            while live and sum(leaves[name].numel() for name, _ in (*some, live[-1])) <= _AT_ONCE:
                some.append(live.pop())
            v = [self._direction(name).to(g.dtype) for name, g in some]
            pull_back([g for _, g in some], list(leaves.values()), v, keep=bool(live))

    def _number(self, values: Iterable[float]) -> Tensor:
        return torch.tensor([sum(values)], dtype=torch.float64, device=self.problem.device)

    def _zeros(self) -> list[Tensor]:
        """Nothing yet, folded, for all parameters."""
        like = torch.zeros((), dtype=self.problem.dtype, device=self.problem.device)
        return [like.new_zeros(folded_shape(tensor)) for tensor in self.values.values()]

    def _add(self, totals: list[Tensor], index: int, part: Tensor | None) -> None:
        """Add a gradient, folded and zero in rows that torch holds constant; what was given is not changed."""
        if part is not None:
            name = list(self.values)[index]
            totals[index] += folded(self._varying(name, part.detach().to(self.problem.dtype)))

    def _varying(self, name: str, part: Tensor) -> Tensor:
        if name not in self.constant:
            return part
        part = part.clone()
        part[list(self.constant[name])] = 0
        return part
