"""The global random state of torch, NumPy and Python is the user's: whatever draws from it here is undone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ...rng import Rng


class RandomState:
    """The global random state of torch, NumPy and Python, as it was when this was made."""

    def __init__(self) -> None:
        self._torch, self._python = torch.get_rng_state(), random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def moved(self) -> bool:
        """Whether something has been drawn since."""
        cuda = torch.cuda.get_rng_state_all() if self._cuda else []
        numpy = np.random.get_state()  # noqa: NPY002
        return (
            not torch.equal(self._torch, torch.get_rng_state())
            or any(not torch.equal(a, b) for a, b in zip(self._cuda, cuda, strict=True))
            or self._python != random.getstate()
            or any(not np.array_equal(a, b) for a, b in zip(self._numpy, numpy, strict=True))
        )

    def scramble(self, number: int) -> None:
        """Another state of torch, by number."""
        torch.set_rng_state(Rng(0).child("scrambled", number).torch().get_state())

    def restore(self) -> None:
        """Put it back; only where it moved, as another thread may draw meanwhile."""
        if self.moved():
            torch.set_rng_state(self._torch)
            random.setstate(self._python)
            np.random.set_state(self._numpy)  # noqa: NPY002
            if self._cuda:
                torch.cuda.set_rng_state_all(self._cuda)


@contextmanager
def random_state_kept(wanted: bool = True) -> Iterator[RandomState | None]:
    """The global random state is left as it was found."""
    state = RandomState() if wanted else None
    try:
        yield state
    finally:
        if state is not None:
            state.restore()
