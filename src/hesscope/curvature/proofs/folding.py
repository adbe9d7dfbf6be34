"""Large vectors are compared by a few random sums of their slices: their norms, for a sixteenth of the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ...rng import Rng

LARGE = 1 << 20  # entries: smaller tensors are compared entry by entry
_SLICES, _SUMS = 128, 8


def folded(part: Tensor) -> Tensor:
    """The tensor itself, or 8 sums of its 128 slices with random weights, where it is large.

    Linear in the tensor, and its squared norm is on average that of the tensor. An error in a single entry is in every
    sum; that one of any other form is seen a hundred times too small by all of them has a chance of 1e-15.
    """
    if part.numel() < LARGE:
        return part
    flat, length = part.reshape(-1), part.numel() // _SLICES
    weights = torch.randn(_SUMS, _SLICES, generator=Rng(0).child("fold").torch(), dtype=torch.float64, device="cpu")
    sums = weights.to(flat).mul_(_SUMS**-0.5) @ flat[: _SLICES * length].view(_SLICES, length)
    return torch.cat([sums.view(-1), flat[_SLICES * length :]])


def folded_shape(part: Tensor) -> tuple[int, ...]:
    """The shape of `folded(part)`."""
    length, rest = divmod(part.numel(), _SLICES)
    return tuple(part.shape) if part.numel() < LARGE else (_SUMS * length + rest,)


@contextmanager
def handed_on(leaves: Sequence[Tensor], take: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Backward passes inside give each leaf's gradient to `take` as soon as it is complete, and return zeros without
    memory in its place: a large network's gradient is never there as a whole."""

    def hook(index: int) -> Callable[[Tensor], Tensor]:
        def hand(gradient: Tensor) -> Tensor:
            take(index, gradient)
            return gradient.new_zeros(()).expand_as(gradient)

        return hand

    handles = [leaf.register_hook(hook(index)) for index, leaf in enumerate(leaves)]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
