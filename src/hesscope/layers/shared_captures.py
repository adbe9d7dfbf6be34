"""One forward pass for all who ask: inside an analysis, what layers were given is seen once and kept while it fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from ..curvature.data import tensors_of
from ..curvature.engines.memory import bytes_in_graph
from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem, ScalarLoss
from .capturing import Capture, capture, every_parameter

_SHARE = 8  # of the budget at most this part: products keep their graphs with the rest


class _Shared:
    """The captures of some of a problem's own batches, all layers in each."""

    def __init__(self, problem: Problem) -> None:
        self.runs: dict[int, Capture] = {}  # by the identity of batches that the problem holds
        self.own = {id(batch) for batch in problem.batches} if problem.batches.held else set()
        self.left, self.taken = problem.memory_budget.limit / _SHARE, 0

    def run(self, problem: Problem, batch: Any) -> Capture:
        if id(batch) in self.runs:
            return self.runs[id(batch)]
        run = capture(problem, batch)
        size = _bytes_of(run, (*every_parameter(problem).values(), *tensors_of(batch)))
        if size <= self.left and problem.memory_budget.reserve(size):
            self.left, self.taken = self.left - size, self.taken + size
            self.runs[id(batch)] = run
        return run


def _bytes_of(run: Capture, there: Iterable[Tensor]) -> int:
    """What the graph of a capture and the tensors of its layers take, beside those that are there anyway."""
    own, output = {storage.data_ptr() for storage in map(Tensor.untyped_storage, there)}, run.output()[0]
    seen = map(Tensor.untyped_storage, (output, *(t for layer in run.layers for t in (layer.z, layer.roles.x))))
    held = {storage.data_ptr(): storage.nbytes() for storage in seen if storage.data_ptr() not in own}
    return sum(held.values()) + bytes_in_graph(SimpleNamespace(output=output), own | set(held))


_SHARED: WeakKeyDictionary[Problem, _Shared] = WeakKeyDictionary()


@contextmanager
def captures_shared(problem: Problem) -> Iterator[None]:
    """Inside, `captured` runs each of the problem's own batches once, as far as a part of its memory goes."""
    if problem in _SHARED:
        yield
        return
    shared = _SHARED[problem] = _Shared(problem)
    try:
        yield
    finally:
        del _SHARED[problem]
        problem.memory_budget.release(shared.taken)


def captured(problem: Problem, batch: Any, names: Collection[str] | None = None) -> Capture:
    """What `capture` gives of these layers; several callers share it, so that none may free its graph."""
    shared = _SHARED.get(problem)
    if shared is None or id(batch) not in shared.own:
        return capture(problem, batch, names)
    run = shared.run(problem, batch)
    layers = [layer for layer in run.layers if names is None or layer.name in names]
    return Capture(run.terms, layers, run.uses)


def shared_terms(problem: Problem) -> Callable[[Any], OutputLoss | ScalarLoss] | None:
    """What gives the loss terms of the problem's own batches by a pass that others share, where there is one."""
    shared = _SHARED.get(problem)
    return None if shared is None or not shared.own else lambda batch: shared.run(problem, batch).terms
