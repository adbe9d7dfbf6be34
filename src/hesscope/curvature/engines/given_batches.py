"""Batches as they were given, where joined or cut ones turn out to have another loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from ..problem import Problem
from ..proofs.batch_values import LossChanged

if TYPE_CHECKING:
    from .kept import KeptGraphs

_Engine = TypeVar("_Engine", bound="KeptGraphs")  # type: ignore[type-arg]
_Arguments = ParamSpec("_Arguments")
_T = TypeVar("_T")
_Method = Callable[Concatenate[_Engine, _Arguments], _T]


def in_given_batches(work: _Method[_Engine, _Arguments, _T]) -> _Method[_Engine, _Arguments, _T]:
    """A method of an engine that is called once more where the loss has changed and batches were not those given.

    A few examples do not tell of a batch that decides something for all of its examples: by its size, its longest text, or a
    mark in its first row.
    """

    @wraps(work)
    def run(self: _Engine, *args: _Arguments.args, **named: _Arguments.kwargs) -> _T:
        try:
            return work(self, *args, **named)
        except LossChanged:
            if not _taken_whole(self.problem):
                raise
            self._size = None
            return work(self, *args, **named)

    return cast(_Method[_Engine, _Arguments, _T], run)


def _taken_whole(problem: Problem) -> bool:
    """Batches are neither joined nor cut from here on; False where they were not, or processes must do alike."""
    every = [problem, *([] if problem.selected_from is None else [problem.selected_from])]
    if problem.distributed or not problem.divisible:
        return False
    for one in every:
        one.__dict__["divisible"] = False
    return True
