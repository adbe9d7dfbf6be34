"""Numbers in the types of the tensors they come from, also where the caller has autocast switched on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_DEVICES = ("cpu", "cuda")


@contextmanager
def own_types() -> Iterator[None]:
    """Autocast is off inside the block. Usable as a decorator.

    Trainers validate under it: vectors of float32 would be multiplied with four of their digits.
    """
    on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if not on:
        yield
        return
    with ExitStack() as stack:
        for device in on:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
