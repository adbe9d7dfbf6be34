"""What a problem is made of, to the bit: what tells its matrices from those of any other problem."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..operators.content import digest
from .data import tensors_of
from .losses.parsing import SeparableLoss
from .problem import Problem
from .processes import from_every

_FOUND: WeakKeyDictionary[Problem, str] = WeakKeyDictionary()


def content_of(problem: Problem) -> str:
    """Parameters, buffers, data, loss and how it is averaged, as one short text; the same in every process."""
    if problem not in _FOUND:
        _FOUND[problem] = repr((*_tensors(problem), _loss(problem)))
    return _FOUND[problem]


def _tensors(problem: Problem) -> tuple[str, str]:
    state = _state(problem)
    # Data that is streamed is known by its loss, as is what a batch holds besides tensors. Nine digits: sums over
    # threads may differ in the last ones.
    values = " ".join(f"{number:.9g}" for number in problem.totals)
    held = (
        digest(*(tensor for batch in problem.batches for tensor in tensors_of(batch))) if problem.batches.held else ""
    )
    parts = from_every(held) if problem.distributed else [held]
    return state, f"{values} {' '.join(parts)}"


def _state(problem: Problem) -> str:
    if problem.spread is None:
        return digest(*problem.parameters.values(), *problem._fixed.values())
    own = digest(*problem.spread.exchange.parts.values(), *problem.spread.buffers.values())
    return " ".join(from_every(own))


def _loss(problem: Problem) -> str:
    loss = problem.loss
    if isinstance(loss, SeparableLoss):
        return f"{loss.reduction} {problem.scale:.9g}"
    return f"{getattr(loss, '__qualname__', type(loss).__qualname__)} {problem.scale:.9g}"
