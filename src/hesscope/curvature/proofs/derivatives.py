"""Proof, once per problem, that torch's derivatives of this network are right: against float64 differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...errors import DerivativeError, HesscopeError, refuse
from ...rng import Rng
from ..data import examples_in, map_tensors
from ..engines.backward import hessian_product, random_direction
from ..engines.memory import is_out_of_memory
from ..gradient_mode import differentiable
from ..losses.parsing import SeparableLoss
from ..models.recurrent_kernels import recurrent_note
from ..models.replaced_operations import padding_rows
from ..models.wide_precision import InFloat64
from ..problem import Problem
from ..spread import gathered
from .faulty_modules import find_faulty_modules
from .probing import give_back_of, is_large, on_few_examples, without_values
from .shortening import shortened
from .trial import FLOAT32, FLOAT64, Precision, Trial

GapOf = Callable[[Trial], float]

_NO_MODULE = (
    " Where outputs are saturated (margins above 20), a loss written by hand has no digits left: pass torch's own, "
    "such as 'cross_entropy', which is written out here and keeps them."
)
_LOST = 1e-3  # of a product: what float32 leaves of an ordinary one is a thousand times closer
_TURNS = 3  # of a random vector towards the largest curvature
_POINTS = 3  # a kink spoils one point, a wrong derivative all of them
_EXAMPLES, _FEW, _SHARE = 8, 4, 8  # at most so many; beyond a few, at most this part of the data


@dataclass(frozen=True)
class Proof:
    """Whether products agree with differences, how closely, and what is to blame where they do not.

    `product_error`: what a lower precision inside the network does to the product with a unit vector.
    """

    right: bool
    gap: float
    examples: int
    precision: str
    what: str = "products"
    faulty_modules: tuple[str, ...] = ()
    note: str = ""
    product_error: float = 0.0

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
            hint = "" if self.faulty_modules else _NO_MODULE
            raise DerivativeError(
                f"every derivative must be right; {self.what} differ from {self.precision} differences by "
                f"{self.gap:.1e} on {self.examples} examples; these have none or a wrong one: {self.named}. Replace the "
                f"module by one of plain operations, or leave its parameters out with params=.{hint}"
            )


def prove_hessian(problem: Problem) -> Proof:
    """∇L against differences of L, and H v by double backward against differences of ∇L, near θ."""
    return _once(problem, "products", Trial.hessian_gap)


def prove_jacobian(problem: Problem) -> Proof:
    """J v against differences of the outputs f, Jᵀ against J, and the loss's curvature against differences of ∂ℓ/∂f."""
    return _once(problem, "Jacobian products", Trial.jacobian_gap)


def _once(problem: Problem, what: str, gap_of: GapOf) -> Proof:
    if what not in problem.proofs:
        problem.proofs[what] = _proof(problem if problem.spread is None else gathered(problem), what, gap_of)
        give_back_of(problem)
    found: Proof = problem.proofs[what]
    return found


def _proof(problem: Problem, what: str, gap_of: GapOf) -> Proof:
    with differentiable():
        tried = derivative_probe(problem)
        precision, widening = tried.precision, tried.widening
        batches = list(tried.problem.batches)
        with widening:
            gap, said = inf, ""
            try:
                gap = _smallest_gap(tried, batches, gap_of)
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
            faulty = find_faulty_modules(tried.at_its_values()) or ((said,) if said else ()) if float(wrong) else ()
        own = {tensor.dtype for tensor in problem.parameters.values()}  # vectors of a bfloat16 model are in float32
        narrowed = getattr(widening, "narrowed", None) or max(own, key=lambda dtype: torch.finfo(dtype).eps)
        coarser = torch.finfo(narrowed).eps > torch.finfo(problem.dtype).eps and not float(wrong)
        looked = coarser or (not float(wrong) and precision is FLOAT64 and _may_lose_digits(problem))
        noise, moved = _noise(problem, tried.at_its_values(), widening) if looked else (0.0, 0.0)
        name = str(narrowed).removeprefix("torch.")
        note = ""
        if coarser:
            note = f"; the network computes in {name} inside, which alone changes products by {noise:.0e}"
        elif noise > _LOST:
            note = f"; {name} has lost digits of this loss, which changes products by {noise:.0e}: cast(torch.float64) has them"
        else:
            moved = 0.0  # rounding, which every float32 product has
        note += tried.note + recurrent_note(problem.model, problem.device)
    examples = sum(examples_in(batch) or 1 for batch in batches)
    return Proof(not float(wrong), gap, examples, precision.name, what, faulty, note, moved)


def _smallest_gap(tried: DerivativeProbe, batches: list[Any], gap_of: GapOf) -> float:
    """The gap on all examples at the first point that no kink spoils; else the worst of the examples one by one."""
    trials: list[Trial] = []
    best, tolerance = inf, tried.precision.tolerance
    for index in range(_POINTS):
        trials.append(Trial(tried.problem, tried.values, batches, tried.constant, index, tried.precision))
        best = min(best, gap_of(trials[-1]))
        if best <= tolerance:
            return best
    # In a network of many units some example may be near a kink at every point, but hardly the same one each time.
    worst = 0.0
    for single in _singles(tried.problem, batches):
        smallest = inf
        for trial in trials:
            smallest = min(smallest, gap_of(trial.on([single])))
            if smallest <= tolerance:
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


@dataclass(frozen=True)
class DerivativeProbe:
    """A few examples in float64 throughout where the network can be run so, else in its own type.

    `problem` evaluates it at parameters that are given, `values` are its own; `widening` is what it runs under; `constant`
    are the rows of parameters that torch holds constant in the backward pass only, padding rows of embeddings.
    """

    problem: Problem
    values: Mapping[str, Tensor]
    precision: Precision
    widening: AbstractContextManager[Any]
    constant: Mapping[str, set[int]]
    note: str = ""

    def at_its_values(self) -> Problem:
        """The problem with parameters that are there, as they are not in a large one."""
        values = {name: self.values[name].to(t.dtype) for name, t in self.problem.parameters.items()}
        return self.problem._copy(parameters=values) if is_large(self.problem) else self.problem


_PROBES: WeakKeyDictionary[Problem, DerivativeProbe] = WeakKeyDictionary()


def derivative_probe(problem: Problem) -> DerivativeProbe:
    """What derivatives are tried on; found once per problem."""
    if problem not in _PROBES:
        _PROBES[problem] = _derivative_probe(problem)
    return _PROBES[problem]


def _derivative_probe(problem: Problem) -> DerivativeProbe:
    few, note = shortened(_few_of(problem))
    values, widening = few.parameters, InFloat64()
    try:
        if all(t.dtype == torch.float64 for t in (*values.values(), *few._fixed.values()) if t.is_floating_point()):
            wide = few
        else:
            wide = without_values(few, torch.float64) if is_large(few) else few.cast(torch.float64)
        with widening:
            constant = _constant_rows(wide, values)
        # A network that asks for nothing narrower runs in float64 by itself, and faster without being watched.
        unwatched = widening if widening.needed else nullcontext()
        return DerivativeProbe(wide, values, FLOAT64, unwatched, constant, note)
    except HesscopeError:
        raise
    except Exception:
        return DerivativeProbe(few, values, FLOAT32, nullcontext(), _constant_rows(few, values), note)


def _few_of(problem: Problem) -> Problem:
    """As few examples as the proof takes; of a large network in its own type."""
    probe = problem.probe if not is_large(problem) else on_few_examples(problem)
    return probe.subset(proof_examples(problem)) if problem.divisible else probe


def proof_examples(problem: Problem) -> int:
    """As many examples as make the proof cheap beside a gradient of all data, if there are so many."""
    total = sum(examples_in(batch) or 1 for batch in problem.batches) if problem.batches.held else _SHARE * _EXAMPLES
    return max(2, min(_FEW, total // _FEW), min(_EXAMPLES, total // _SHARE))


def _constant_rows(problem: Problem, values: Mapping[str, Tensor]) -> dict[str, set[int]]:
    """Padding rows of embeddings, by the name of their weight."""

    def run(parameters: Mapping[str, Tensor]) -> None:
        for batch in problem.batches:
            problem.evaluate(batch, parameters)

    own = problem.parameters
    leaves = {name: tensor.to(own[name].dtype).detach().requires_grad_() for name, tensor in values.items()}
    return padding_rows(run, leaves)


def _may_lose_digits(problem: Problem) -> bool:
    """Whether a narrow type may not hold what the loss cancels, as 1 - p of a saturated network; ours are written out with care."""
    narrow = problem.dtype != torch.float64 and not problem.distributed and not is_large(problem)
    return narrow and not (isinstance(problem.loss, SeparableLoss) and problem.loss.written_out)


def _noise(problem: Problem, probe: Problem, widening: AbstractContextManager[Any]) -> tuple[float, float]:
    """What the lower precision inside the network does to products on the few examples: relative to them, and to those
    of the whole loss with a unit vector. Along a random vector and what it is turned to, where curvature is largest."""
    v = random_direction(problem, Rng(0).child("noise"))
    # A sum over all examples has their number of times the error that a mean has.
    with widening:
        times = problem.scale * problem.totals[1] / probe.totals[1]
    relative, absolute = 0.0, 0.0
    for _ in range(_TURNS):
        with widening:
            truth = hessian_product(probe, probe.batches, probe.parameters, v.to(probe.dtype))
        gap = float((hessian_product(problem, probe.batches, problem.parameters, v).to(truth) - truth).norm())
        size = float(truth.norm())
        absolute = max(absolute, times * gap / max(float(v.norm()), 1e-300))
        relative = max(relative, gap / max(size, 1e-300))
        if not size > 0:
            break
        v = (truth / size).to(v)
    return relative, absolute
