"""Flat tensors inside, names at the border: which named tensors make up a flat vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from math import prod
from typing import NoReturn

import torch
from torch import Tensor

from .arguments import shown
from .errors import refuse


@dataclass(frozen=True)
class ParameterSpace:
    """Named tensor shapes laid end to end as one vector of `size` numbers.

    >>> space = ParameterSpace(("w", "b"), ((2, 3), (2,)))
    >>> space.size, space.slice_of("b")
    (8, slice(6, 8, None))
    >>> space.select("b").names
    ('b',)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> ParameterSpace:
        """The space of these named tensors, in their order."""
        return ParameterSpace(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        return sum(self.sizes)

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Each name with its place in the flat vector."""
        start = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            yield name, slice(start, start + size)
            start += size

    def slice_of(self, name: str) -> slice:
        """The place of one tensor in the flat vector."""
        for other, place in self.slices():
            if other == name:
                return place
        self._unknown(name)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        if name not in self.names:
            self._unknown(name)
        return self.shapes[self.names.index(name)]

    def match(self, globs: str | Iterable[str]) -> tuple[str, ...]:
        """The names that some glob matches, in the order of the space; an unmatched glob is an error."""
        patterns = [globs] if isinstance(globs, str) else list(globs) if isinstance(globs, Iterable) else [globs]
        if not patterns:
            self._unknown([])
        chosen: set[str] = set()
        for pattern in patterns:
            if not isinstance(pattern, str):
                self._unknown(pattern)
            # A name is itself, also where it reads like a pattern, as that of a module called "[ab]".
            exact = pattern in self.names
            found = {name for name in self.names if name == pattern or (not exact and fnmatchcase(name, pattern))}
            if not found:
                self._unknown(pattern)
            chosen |= found
        return tuple(name for name in self.names if name in chosen)

    def select(self, globs: str | Iterable[str]) -> ParameterSpace:
        """The smaller space of the matching tensors."""
        chosen = self.match(globs)
        return ParameterSpace(chosen, tuple(self.shape_of(name) for name in chosen))

    def only(self, names: Iterable[str]) -> ParameterSpace:
        """The smaller space of exactly these names, in the order of the space."""
        wanted = set(names)
        for name in wanted - set(self.names):
            self._unknown(name)
        if not wanted:
            refuse("at least one name must be chosen", "none", self._here())
        chosen = tuple(name for name in self.names if name in wanted)
        return ParameterSpace(chosen, tuple(self.shape_of(name) for name in chosen))

    def indices(self, globs: str | Iterable[str]) -> Tensor:
        """The flat positions of the matching tensors."""
        places = dict(self.slices())
        return torch.cat([torch.arange(places[n].start, places[n].stop, device="cpu") for n in self.match(globs)])

    def pack(self, tensors: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """One flat vector from tensors in the order of the space; `None` becomes zeros."""
        if len(tensors) != len(self.names):
            refuse(f"a vector of this space is made of {len(self.names)} tensors", f"{len(tensors)}", self._here())
        flat = like.new_empty(self.size)
        start = 0
        for index, (tensor, size) in enumerate(zip(tensors, self.sizes, strict=True)):
            piece = flat[start : start + size]
            if tensor is None:
                piece.zero_()
            elif tensor.numel() != size:
                refuse(
                    f"{self.names[index]!r} must have shape {self.shapes[index]}",
                    f"{tuple(tensor.shape)}",
                    self._here(),
                )
            else:
                piece.copy_(tensor.detach().reshape(-1))
            start += size
        return flat

    def unpack(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat `(n,)` vector, shaped as the tensors of the space."""
        if not isinstance(flat, Tensor):
            refuse("a flat vector must be a tensor", type(flat).__name__, "Use torch.from_numpy for an array.")
        if flat.shape != (self.size,):
            refuse(
                f"a flat vector must have shape ({self.size},)",
                f"{tuple(flat.shape)}",
                "Pass one number per parameter.",
            )
        return [flat[place].view(shape) for (_, place), shape in zip(self.slices(), self.shapes, strict=True)]

    def _unknown(self, pattern: object) -> NoReturn:
        given = repr(pattern) if isinstance(pattern, str | list) else shown(pattern)
        refuse("a parameter glob must match at least one parameter", given, self._here())

    def _here(self) -> str:
        return f"Parameters here: {', '.join(self.names[:12])}{', ...' if len(self.names) > 12 else ''}."
