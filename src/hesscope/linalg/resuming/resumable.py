"""Runs that can be stopped: their state goes to a folder after every step, and the next run goes on from there."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from .checkpoint import Arrays, Store


class Resumable(ABC):
    """A run with an optional store; it says itself what its state is made of."""

    _store: Store | None = None

    def keep_in(self, store: Store) -> None:
        """Write the state to `store` after every step, and go on from what is there."""
        self._store = store
        loaded = store.load()
        if loaded is not None:
            self._restore(*loaded)

    @abstractmethod
    def _restore(self, state: Arrays, vectors: dict[int, Tensor]) -> None:
        """Be what the run was when it wrote this."""
