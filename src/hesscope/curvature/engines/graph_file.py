"""What autograd saves for a graph, in a file instead of in memory: written when it is saved, read when a pass needs it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ...scratch import scratch_file

_SMALL = 1 << 16  # bytes of a tensor that stays in memory
_MOST = 1 << 30  # bytes that the system reads or writes at once


class NoRoom(BaseException):
    """The file may not, or the disk cannot, take more. No model is to take it for an exception of its own."""


@dataclass(frozen=True)
class _Saved:
    """Where a tensor is in the file, and its form."""

    place: int
    nbytes: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conjugate: bool
    negative: bool

    def of(self, content: torch.UntypedStorage) -> Tensor:
        tensor = torch.empty(0, dtype=self.dtype).set_(content, self.offset, self.size, self.stride)
        tensor = tensor.conj() if self.conjugate else tensor
        return torch._neg_view(tensor) if self.negative else tensor


class GraphFile:
    """A file without a name that holds saved tensors until the graphs that saved them are gone."""

    def __init__(self, handle: int, most: int) -> None:
        self._handle, self._most, self.size = handle, most, 0
        finalize(self, os.close, handle)

    @classmethod
    def new(cls, where: Path, most: int) -> GraphFile | None:
        """A file of at most so many bytes; None where there can be none."""
        handle = scratch_file(where)
        return None if handle is None else cls(handle, most)

    @contextmanager
    def saving(self, without: set[int]) -> Iterator[None]:
        """Inside, what autograd saves is written, but for the storages at `without`, which are in memory anyway.

        A tensor that several operations save is written once, as long as it holds the same numbers.
        """
        written: dict[StorageWeakRef, tuple[int, int]] = {}  # these references keep an address from being given again

        def pack(tensor: Tensor) -> _Saved | Tensor:
            plain = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
            if not plain or (storage := tensor.untyped_storage()).nbytes() <= _SMALL or storage.data_ptr() in without:
                return tensor.detach()  # the tensor itself could close a cycle through its own graph node
            key, checksum = StorageWeakRef(storage), zlib.crc32(_view(storage))
            place, then = written.get(key, (0, -1))
            if then != checksum:
                place = self._write(storage)
                written[key] = place, checksum
            form = tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
            return _Saved(place, storage.nbytes(), *form, tensor.is_conj(), tensor.is_neg())

        def unpack(saved: _Saved | Tensor) -> Tensor:
            return saved if isinstance(saved, Tensor) else saved.of(self._read(saved.place, saved.nbytes))

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield

    def _write(self, storage: torch.UntypedStorage) -> int:
        place, size = self.size, storage.nbytes()
        if place + size > self._most:
            raise NoRoom
        view = _view(storage)
        try:
            _whole(size, lambda start: os.pwrite(self._handle, view[start : start + _MOST], place + start))
        except OSError as error:
            raise NoRoom from error
        self.size = place + size
        return place

    def _read(self, place: int, size: int) -> torch.UntypedStorage:
        storage = torch.UntypedStorage(size)
        view = _view(storage)
        _whole(size, lambda start: os.preadv(self._handle, [view[start : start + _MOST]], place + start))
        return storage


def _view(storage: torch.UntypedStorage) -> memoryview:
    return memoryview(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())


def _whole(size: int, move: Callable[[int], int]) -> None:
    """Move bytes until all are moved: the system may take fewer than it was given."""
    done = 0
    while done < size:
        moved = move(done)
        if not moved:
            raise OSError("a file ended early")
        done += moved


class CountedOperations(TorchDispatchMode):
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
