"""A sum over numbered steps, kept on disk as it grows: a run that goes on skips what is in it already."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .checkpoint import Arrays, Store

_PER_STEP = 4e6  # bytes; a larger sum is written after several steps


class Steps:
    """Counts the steps of each stage of one sum; `found` is the sum that an earlier run left, empty where none did.

    When a state is written depends on nothing but its size, so that processes that share a run write the same ones.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        loaded = None if store is None else store.load()
        self.found: Arrays = {} if loaded is None else loaded[0]
        self._done = {name[6:]: int(count) for name, count in self.found.items() if name.startswith("steps ")}
        self._unwritten = 0

    def done(self, stage: str) -> int:
        """How many steps of a stage are in the sum."""
        return self._done.get(stage, 0)

    def made(self, stage: str, state: Callable[[], Arrays], count: int = 1) -> None:
        """One more step, or several, are in the sum, whose parts `state` gives."""
        self._done[stage] = self.done(stage) + count
        self._unwritten += 1
        if self._store is not None:
            arrays = state()
            if sum(np.asarray(part).nbytes for part in arrays.values()) <= _PER_STEP * self._unwritten:
                self._write(arrays)

    def finish(self, state: Callable[[], Arrays]) -> None:
        """Write what was not written yet."""
        if self._store is not None and self._unwritten:
            self._write(state())

    def _write(self, arrays: Arrays) -> None:
        assert self._store is not None
        counts = {f"steps {stage}": np.array(count) for stage, count in self._done.items()}
        self._store.save({**arrays, **counts}, [], [])
        self._unwritten = 0
