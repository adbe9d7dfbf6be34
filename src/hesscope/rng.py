"""Explicit, named randomness: `Rng(seed).child("slq", 3)`; new draws never shift old ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .arguments import shown
from .errors import refuse

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rng:
    """A named source of randomness; every child name gives its own independent stream.

    >>> Rng(0).child("probe", 1).key == Rng(0).child("probe", 1).key
    True
    >>> Rng(0).child("probe", 1).key == Rng(0).child("probe", 2).key
    False
    """

    seed: int = 0
    path: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int | np.integer) or isinstance(self.seed, bool):
            refuse("a seed must be an integer", shown(self.seed), "Use Rng(0).")
        if not (isinstance(self.path, tuple) and all(isinstance(name, str) for name in self.path)):
            refuse("a path must be a tuple of texts", shown(self.path), "Use Rng(seed).child(name).")

    @staticmethod
    def of(rng: Rng | int | None) -> Rng:
        """A source from what users give: itself, a seed, or None for seed 0."""
        if isinstance(rng, Rng):
            return rng
        if rng is None:
            return Rng(0)
        if isinstance(rng, bool) or not isinstance(rng, int | np.integer):
            refuse(
                "rng must be an Rng, a seed or None", f"{type(rng).__name__} {rng!r}", "Write rng=0 or rng=hs.Rng(0)."
            )
        return Rng(int(rng))

    def child(self, *names: object) -> Rng:
        """The stream called `names` below this one."""
        return Rng(self.seed, self.path + tuple(str(name) for name in names))

    @property
    def key(self) -> int:
        """A 63-bit integer that depends on the seed and the whole path."""
        text = "\x1f".join((str(self.seed), *self.path))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

    def numpy(self) -> np.random.Generator:
        """A fresh NumPy generator at the start of this stream."""
        return np.random.default_rng(self.key)

    def torch(self) -> torch.Generator:
        """A fresh torch generator at the start of this stream (on the CPU, so that every device sees the same draws)."""
        import torch

        return torch.Generator().manual_seed(self.key)
