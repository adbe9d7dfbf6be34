"""What a long run needs around it: a place to keep what is done, so that a killed run goes on, and someone to tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..files import make_folder, replace

SECONDS = 60.0  # of work that a kill may take back
Listener = Callable[[str], None]
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)
_shared: ContextVar[Path | None] = ContextVar("shared", default=None)
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def keeping(folder: str | os.PathLike[str] | None, tell: Listener | None = None) -> Iterator[None]:
    """Inside, `kept` states are files of this folder and `progress` is told to this listener."""
    tokens = _folder.set(None if folder is None else Path(folder)), _listener.set(tell)
    try:
        yield
    finally:
        _folder.reset(tokens[0])
        _listener.reset(tokens[1])


@contextmanager
def sharing(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Inside, what experiments have in common (trained networks) is kept in this folder for the next of them."""
    token = _shared.set(Path(folder))
    try:
        yield
    finally:
        _shared.reset(token)


def current_folder() -> Path | None:
    """Where this run keeps what is done; None where it keeps nothing."""
    return _folder.get()


def progress(text: str) -> None:
    """Say how far a run has come."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


class Kept:
    """Tensors by name under one key; `key` must name everything that they depend on.

    What is `common` to several experiments goes where `sharing` says.
    """

    def __init__(self, key: str, common: bool = False) -> None:
        folder = (_shared.get() if common else None) or _folder.get()
        self._file = None if folder is None else folder / f"{sha256(key.encode()).hexdigest()[:24]}.pt"
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether so much was done since the last `save` that it is time for the next."""
        return time.monotonic() - self._saved >= SECONDS

    def load(self) -> dict[str, Any] | None:
        """What was saved last, or None."""
        import torch

        if self._file is None or not self._file.exists():
            return None
        state = torch.load(self._file, weights_only=True)
        assert isinstance(state, dict)
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Whole or not at all."""
        import torch

        self._saved = time.monotonic()
        if self._file is not None:
            make_folder(self._file.parent)
            replace(self._file, lambda f: torch.save(state, f))
