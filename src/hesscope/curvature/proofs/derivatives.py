"""Proof, once per problem, that torch's derivatives of this network are right: against float64 differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, ulp
from typing import Any

import torch
from torch import Tensor

from ...errors import DerivativeError, HesscopeError, refuse
from ...rng import Rng
from ..data import examples_in, map_tensors
from ..engines.backward import (
    hessian_product,
    jacobian_product,
    noise_like,
    place_of,
    pull_back,
    random_direction,
    size_of,
)
from ..engines.memory import is_out_of_memory
from ..gradient_mode import differentiable
from ..losses.base import OutputLoss
from ..models.recurrent_kernels import recurrent_note
from ..models.replaced_operations import padding_rows
from ..models.wide_precision import InFloat64
from ..problem import Problem, ScalarLoss
from .differences import STEPS, best_gap
from .faulty_modules import find_faulty_modules

TOLERANCE = 1e-5
_POINTS = 3  # a kink spoils one point, a wrong derivative all of them
_DISPLACEMENT = 1e-3  # from θ, relative to each tensor: off the kinks that zero biases and zero inputs sit on
_EXAMPLES, _FEW, _SHARE = 8, 4, 8  # at most so many; beyond a few, at most this part of the data


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


@dataclass(frozen=True)
class Proof:
    """Whether products agree with differences, how closely, and what is to blame where they do not."""

    right: bool
    gap: float
    examples: int
    precision: str
    what: str = "products"
    faulty_modules: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if not self.right:
            return f"WRONG: {self.what} differ from {self.precision} differences by {self.gap:.1e} ({self.named})"
        compared = f"{self.what} within {self.gap:.0e} of {self.precision} differences"
        return f"verified on {self.examples} examples: {compared}{self.note}"

    @property
    def named(self) -> str:
        return "; ".join(self.faulty_modules) or "no single module found"

    def need_right(self) -> None:
        """Refuse wrong derivatives."""
        if not self.right:
            raise DerivativeError(
                f"every derivative must be right; {self.what} differ from {self.precision} differences by "
                f"{self.gap:.1e} on {self.examples} examples; these have none or a wrong one: {self.named}. Replace the "
                "module by one of plain operations, or leave its parameters out with params=."
            )


def prove_hessian(problem: Problem) -> Proof:
    """∇L against differences of L, and H v by double backward against differences of ∇L, near θ."""
    return _once(problem, "products", _hessian_gap)


def prove_jacobian(problem: Problem) -> Proof:
    """J v against differences of the outputs f, Jᵀ against J, and the loss's curvature against differences of ∂ℓ/∂f."""
    return _once(problem, "Jacobian products", _jacobian_gap)


def _once(problem: Problem, what: str, gap_of: Callable[[_Trial, Precision], float]) -> Proof:
    if what not in problem.proofs:
        problem.proofs[what] = _proof(problem, what, gap_of)
    found: Proof = problem.proofs[what]
    return found


class _Trial:
    """A point near θ at which no unit sits on a kink, and a direction; both in proportion to the size of each tensor.

    Of large networks, vectors are what the proof takes most memory for: each is made in its place, and goes early.
    """

    def __init__(self, problem: Problem, batches: list[Any], held: Mapping[str, list[int]], index: int) -> None:
        rng = Rng(0).child("derivative proof", index)
        self.problem, self.batches, self.held = problem, batches, held
        own = list(problem.parameters.values())
        self.sizes = [float(size_of(t)) for t in own]
        flat = torch.empty(problem.space.size, dtype=problem.dtype, device=problem.device)
        self.v = self.in_units(noise_like(rng.child("direction"), flat))
        self.theta = self.in_units(noise_like(rng.child("point"), flat)).mul_(_DISPLACEMENT)
        for piece, tensor in zip(problem.space.unpack(self.theta), own, strict=True):
            piece += tensor
        self.without_held(self.v)

    def in_units(self, flat: Tensor) -> Tensor:
        """Each tensor's part times its size, in place."""
        for size, (_, place) in zip(self.sizes, self.problem.space.slices(), strict=True):
            flat[place] *= size
        return flat

    def without_held(self, flat: Tensor) -> Tensor:
        """Zero where torch holds entries constant, in place."""
        for name, piece in zip(self.problem.space.names, self.problem.space.unpack(flat), strict=True):
            if name in self.held:
                piece[self.held[name]] = 0
        return flat

    def on(self, batches: list[Any]) -> _Trial:
        """The same point and direction on other data."""
        trial = object.__new__(_Trial)
        trial.__dict__ = {**self.__dict__, "batches": batches}
        return trial

    def at(self, step: float) -> dict[str, Tensor]:
        pieces = self.problem.space.unpack(torch.add(self.theta, self.v, alpha=step))
        own = self.problem.parameters
        return {name: piece.to(own[name]) for name, piece in zip(own, pieces, strict=True)}

    def terms(self, step: float) -> Iterator[OutputLoss | ScalarLoss]:
        parameters = self.at(step)
        with torch.no_grad():
            for batch in self.batches:
                yield self.problem.evaluate(batch, parameters)

    def loss(self, step: float) -> Tensor:
        values = [t.total if isinstance(t, ScalarLoss) else t.value for t in self.terms(step)]
        return torch.stack(values).double().sum().reshape(1)

    def gradient(self, step: float) -> Tensor:
        total = torch.zeros_like(self.theta)
        leaves = {name: tensor.requires_grad_() for name, tensor in self.at(step).items()}
        for batch in self.batches:
            self._add(self.problem.batch_gradient(batch, leaves, create_graph=False), total)
        return total

    def product(self) -> Tensor:
        """H v by double backward."""
        total = torch.zeros_like(self.theta)
        leaves = {name: tensor.requires_grad_() for name, tensor in self.at(0.0).items()}
        pieces = self.problem.space.unpack(self.v)
        for batch in self.batches:
            gradients = self.problem.batch_gradient(batch, leaves, create_graph=True)
            live = [
                (place_of(g), d.to(g))
                for g, d in zip(gradients, pieces, strict=True)
                if g is not None and g.requires_grad
            ]
            del gradients  # their numbers are not needed any more, and as many as there are parameters
            if live:
                sources, along = zip(*live, strict=True)
                self._add(pull_back(sources, list(leaves.values()), along, keep=False), total)
        return total

    def _add(self, pieces: Sequence[Tensor | None], total: Tensor) -> None:
        """Add tensors to their places, and let each go on the way."""
        left = list(pieces)
        for index, (_, place) in enumerate(self.problem.space.slices()):
            piece, left[index] = left[index], None
            if piece is not None:
                total[place] += piece.detach().reshape(-1)

    def outputs(self, step: float) -> Tensor:
        return torch.cat([t.f.detach().reshape(-1) for t in self.terms(step) if isinstance(t, OutputLoss)])

    def output_gradients(self, step: float) -> Tensor:
        return torch.cat([t.output_gradient().reshape(-1) for t in self.terms(step) if isinstance(t, OutputLoss)])


def _hessian_gap(trial: _Trial, precision: Precision) -> float:
    steps, rounding = precision.steps, precision.rounding
    along = trial.gradient(0.0).mul_(trial.v)
    slope, size = along.sum().reshape(1), float(along.norm())
    del along
    first = best_gap(trial.loss, slope, steps=steps, rounding=rounding, size=size)
    if first > precision.tolerance:
        return first
    parts = [place for _, place in trial.problem.space.slices()]

    # Entries that torch holds constant have rows that it does not differentiate, so only the others are compared.
    def compared(flat: Tensor) -> Tensor:
        return trial.without_held(trial.in_units(flat))

    product = compared(trial.product())
    second = best_gap(lambda h: compared(trial.gradient(h)), product, parts, steps, rounding)
    return max(first, second)


def _jacobian_gap(trial: _Trial, precision: Precision) -> float:
    steps, rounding = precision.steps, precision.rounding
    leaves = {name: tensor.requires_grad_() for name, tensor in trial.at(0.0).items()}
    pieces = trial.problem.space.unpack(trial.v)
    pushed, bent, mismatch = [], [], 0.0
    for index, batch in enumerate(trial.batches):
        terms = trial.problem.evaluate(batch, leaves)
        assert isinstance(terms, OutputLoss)
        u = noise_like(Rng(0).child("output", index), terms.f)
        Jv, Jtu = jacobian_product(terms, leaves, pieces, u)
        pushed.append(Jv.reshape(-1))
        bent.append(terms.curvature(Jv).reshape(-1))
        other = sum(float((g.detach() * d).sum()) for g, d in zip(Jtu, pieces, strict=True) if g is not None)
        mismatch = max(mismatch, abs(float((u * Jv).sum()) - other) / max(float((u * Jv).norm()), 1e-300))
    if mismatch > precision.tolerance:
        return mismatch
    first = best_gap(trial.outputs, torch.cat(pushed), steps=steps, rounding=rounding)
    second = best_gap(trial.output_gradients, torch.cat(bent), steps=steps, rounding=rounding)
    return max(first, second, mismatch)


def _proof(problem: Problem, what: str, gap_of: Callable[[_Trial, Precision], float]) -> Proof:
    with differentiable():
        probe, precision, widening = derivative_probe(problem)
        batches = list(probe.batches)
        with widening:
            gap, said = inf, ""
            try:
                gap = _smallest_gap(probe, batches, gap_of, precision)
            except HesscopeError as error:
                said = f"torch says: {error.__cause__}" if isinstance(error.__cause__, RuntimeError) else str(error)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                said = f"torch says: {error}"
            # A product is the work of all processes, so they all refuse or none.
            wrong = problem.all_sum(torch.tensor([float(not gap <= precision.tolerance)], device=problem.device))
            if float(wrong) and not isfinite(problem.totals[0]):
                refuse("the loss must be finite", f"{problem.totals[0]}", "Check the data and the parameters for NaN.")
            faulty = find_faulty_modules(probe) or ((said,) if said else ()) if float(wrong) else ()
        narrowed = getattr(widening, "narrowed", None) or problem.dtype
        coarser = torch.finfo(narrowed).eps > torch.finfo(problem.dtype).eps and not float(wrong)
        note = _noise_note(problem, probe, widening, narrowed) if coarser else ""
        note += recurrent_note(problem.model, problem.device)
    examples = sum(examples_in(batch) or 1 for batch in batches)
    return Proof(not float(wrong), gap, examples, precision.name, what, faulty, note)


def _smallest_gap(
    probe: Problem, batches: list[Any], gap_of: Callable[[_Trial, Precision], float], precision: Precision
) -> float:
    """The gap on all examples at the first point that no kink spoils; else the worst of the examples one by one."""
    trials: list[_Trial] = []
    held, best = _held(probe, batches), inf
    for index in range(_POINTS):
        trials.append(_Trial(probe, batches, held, index))
        best = min(best, gap_of(trials[-1], precision))
        if best <= precision.tolerance:
            return best
    # In a network of many units some example may be near a kink at every point, but hardly the same one each time.
    worst = 0.0
    for single in _singles(probe, batches):
        smallest = inf
        for trial in trials:
            smallest = min(smallest, gap_of(trial.on([single]), precision))
            if smallest <= precision.tolerance:
                break
        else:
            return min(best, smallest)
        worst = max(worst, smallest)
    return worst if len(batches) else 0.0


def _singles(probe: Problem, batches: list[Any]) -> Iterator[Any]:
    for batch in batches:
        size = examples_in(batch)
        if size is None or not probe.divisible:
            yield batch
            continue
        for index in range(size):
            yield map_tensors(batch, partial(Tensor.narrow, dim=0, start=index, length=1))


def derivative_probe(problem: Problem) -> tuple[Problem, Precision, AbstractContextManager[Any]]:
    """A few examples in float64 throughout where the network can be run so, else in its own type."""
    few = problem.probe.subset(proof_examples(problem)) if problem.divisible else problem.probe
    wide, widening = few if few.dtype == torch.float64 else few.cast(torch.float64), InFloat64()
    try:
        with widening:
            for batch in wide.batches:
                wide.evaluate(batch, wide.leaves())
        # A network that asks for nothing narrower runs in float64 by itself, and faster without being watched.
        return wide, FLOAT64, widening if widening.needed else nullcontext()
    except HesscopeError:
        raise
    except Exception:
        return few, FLOAT32, nullcontext()


def proof_examples(problem: Problem) -> int:
    """As many examples as make the proof cheap beside a gradient of all data, if there are so many."""
    total = sum(examples_in(batch) or 1 for batch in problem.batches) if problem.batches.held else _SHARE * _EXAMPLES
    return max(2, min(_FEW, total // _FEW), min(_EXAMPLES, total // _SHARE))


def _held(problem: Problem, batches: list[Any]) -> dict[str, list[int]]:
    """Padding rows of embeddings, which torch holds constant, by the names of their parameters."""

    def run(parameters: Any) -> None:
        with torch.no_grad():
            for batch in batches:
                problem.evaluate(batch, parameters)

    return {name: sorted(rows) for name, rows in padding_rows(run, problem.parameters).items()}


def _noise_note(problem: Problem, probe: Problem, widening: AbstractContextManager[Any], narrowed: torch.dtype) -> str:
    """What the lower precision inside the network does to a product."""
    v = random_direction(problem, Rng(0).child("noise"))
    with widening:
        truth = hessian_product(probe, probe.batches, probe.parameters, v.to(probe.dtype))
    rounded = hessian_product(problem, probe.batches, problem.parameters, v).to(truth)
    noise = float((rounded - truth).norm() / max(float(truth.norm()), 1e-300))
    name = str(narrowed).removeprefix("torch.")
    return f"; the network computes in {name} inside, which alone changes products by {noise:.0e}"
