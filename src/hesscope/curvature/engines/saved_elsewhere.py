"""What autograd saves for a graph, somewhere else than it is: in a file, or in memory in half of its precision.

It is put there when it is saved, and fetched when a pass needs it.
"""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.flop_counter import flop_registry

from ...scratch import scratch_file
from ..dispatched import EveryOperation

HALF = {torch.float64: torch.float32, torch.float32: torch.bfloat16}
_SMALL = 1 << 16  # bytes of a tensor that stays as it is
_MOST = 1 << 30  # bytes that the system reads or writes at once


class NoRoom(BaseException):
    """The file may not, or the disk cannot, take more. No model is to take it for an exception of its own."""


class SavedElsewhere(ABC):
    """Storages of saved tensors, put away and fetched."""

    @abstractmethod
    def put(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> Any:
        """Put away a copy; what `fetch` is given."""

    @abstractmethod
    def fetch(self, token: Any) -> torch.UntypedStorage:
        """What was put away."""

    @contextmanager
    def saving(self, without: set[int]) -> Iterator[None]:
        """Inside, what autograd saves is put away, but for the storages at `without`, which are in memory anyway.

        A tensor that several operations save is put away once, as long as it holds the same numbers.
        """
        there: dict[StorageWeakRef, tuple[int, Any]] = {}  # these references keep an address from being given again

        def pack(tensor: Tensor) -> _AsItIs | _Form:
            plain = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
            if not plain or (storage := tensor.untyped_storage()).nbytes() <= _SMALL or storage.data_ptr() in without:
                return _AsItIs(
                    tensor.detach(), tensor._version
                )  # the tensor itself could close a cycle through its node
            key, checksum = StorageWeakRef(storage), zlib.crc32(_view(storage))  # type: ignore[no-untyped-call]
            if there.get(key, (-1,))[0] != checksum:
                there[key] = checksum, self.put(storage, tensor.dtype)
            seen = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
            return _Form(there[key][1], tensor.dtype, seen, tensor.is_conj(), tensor.is_neg())

        def unpack(saved: _AsItIs | _Form) -> Tensor:
            return saved.unchanged() if isinstance(saved, _AsItIs) else saved.of(self.fetch(saved.token))

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield


@dataclass(frozen=True)
class _AsItIs:
    """A tensor that stays where it is. Who hooks into saving must see himself that nothing has changed it."""

    tensor: Tensor
    version: int

    def unchanged(self) -> Tensor:
        if self.tensor._version != self.version:
            raise RuntimeError("a tensor needed for derivatives has been modified by an inplace operation")
        return self.tensor


@dataclass(frozen=True)
class _Form:
    """What was put away, and how a tensor looks at it."""

    token: Any
    dtype: torch.dtype
    seen: tuple[tuple[int, ...], tuple[int, ...], int]  # its shape, strides and beginning
    conjugate: bool
    negative: bool

    def of(self, content: torch.UntypedStorage) -> Tensor:
        shape, strides, start = self.seen
        tensor = torch.empty(0, dtype=self.dtype, device="cpu").set_(content, start, shape, strides)
        tensor = tensor.conj() if self.conjugate else tensor
        return torch._neg_view(tensor) if self.negative else tensor


class GraphFile(SavedElsewhere):
    """A file without a name that holds saved tensors until the graphs that saved them are gone."""

    def __init__(self, handle: int, most: int) -> None:
        self._handle, self._most, self.size = handle, most, 0
        finalize(self, os.close, handle)

    @classmethod
    def new(cls, where: Path, most: int) -> GraphFile | None:
        """A file of at most so many bytes; None where there can be none."""
        handle = scratch_file(where)
        return None if handle is None else cls(handle, most)

    def put(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> tuple[int, int]:
        place, size = self.size, storage.nbytes()
        if place + size > self._most:
            raise NoRoom
        view = _view(storage)
        try:
            _whole(size, lambda start: os.pwrite(self._handle, view[start : start + _MOST], place + start))
        except OSError as error:
            raise NoRoom from error
        self.size = place + size
        return place, size

    def fetch(self, token: tuple[int, int]) -> torch.UntypedStorage:
        place, size = token
        storage = torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()
        view = _view(storage)
        _whole(size, lambda start: os.preadv(self._handle, [view[start : start + _MOST]], place + start))
        return storage


class HalfPrecision(SavedElsewhere):
    """Saved tensors in memory, with half of their digits."""

    def put(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> tuple[Tensor, torch.dtype]:
        if dtype not in HALF:
            dtype = torch.uint8
        values = torch.empty(0, dtype=dtype, device="cpu").set_(storage)
        return (values.to(HALF[dtype]) if dtype in HALF else values.clone()), dtype

    def fetch(self, token: tuple[Tensor, torch.dtype]) -> torch.UntypedStorage:
        return token[0].to(token[1]).untyped_storage()


def _view(storage: torch.UntypedStorage) -> memoryview:
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy().data


def _whole(size: int, move: Callable[[int], int]) -> None:
    """Move bytes until all are moved: the system may take fewer than it was given."""
    done = 0
    while done < size:
        moved = move(done)
        if not moved:
            raise OSError("a file ended early")
        done += moved


class CountedOperations(EveryOperation):  # type: ignore[no-untyped-call]
    """Inside, multiplications and additions of matrix products and convolutions are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        cost = flop_registry.get(func._overloadpacket)
        if cost is not None:
            self.count += int(cost(*args, **kwargs, out_val=out))
        return out
