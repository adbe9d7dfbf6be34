"""Parameters of which each process holds a part: gathered where a module reads them, given up after, gathered again for
derivatives. Gathering and its adjoint, the sum of parts, are linear: torch differentiates through them as often as asked."""

from __future__ import annotations

import weakref
from collections.abc import Callable, ItemsView, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...errors import HesscopeError
from ..distributed import ShardedLayout, together

SMALL = 1 << 15  # entries: biases and norms are had by all, as what is sent alone takes longer than what it holds


@dataclass(frozen=True)
class Share:
    """Which entries of a flattened tensor are whose: by rank, from where to where."""

    number: int  # which is sent along
    shape: torch.Size
    pieces: tuple[tuple[int, slice], ...]
    own: slice
    common: bool  # every process has all of it


class Exchange:
    """The parts of named tensors that this process holds, and how they become whole.

    All processes must ask for the same tensors in the same order, which a network that is run alike by all of them does;
    the number of the tensor is sent along, so that no process takes one for another.
    """

    def __init__(self, chosen: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        """`chosen` lie one after the other in vectors that are shared out; each of the `others` is shared out by itself."""
        self.shares: dict[str, Share] = {}
        self.parts: dict[str, Tensor] = {}
        layout, start = ShardedLayout.here(sum(t.numel() for t in chosen.values())), 0
        for name, tensor in chosen.items():
            self._add(name, tensor, layout, start)
            self.parts[name].requires_grad_()
            start += tensor.numel()
        for name, tensor in others.items():
            self._add(name, tensor, ShardedLayout.here(tensor.numel()), 0)
        self.idle = False  # this process only takes part: what it computes counts for nothing
        self._latest: tuple[str, Tensor] | None = None  # what was gathered last
        self._there: dict[int, tuple[weakref.ref[Tensor], str]] = {}  # by storage: what saved tensors may be views of

    def _add(self, name: str, tensor: Tensor, layout: ShardedLayout, start: int) -> None:
        pieces = []
        for rank in range(layout.world):
            local = ShardedLayout(layout.size, rank, layout.world).local
            first, last = (min(max(place - start, 0), tensor.numel()) for place in (local.start, local.stop))
            if first < last:
                pieces.append((rank, slice(first, last)))
        own = dict(pieces).get(layout.rank, slice(0, 0))
        common = tensor.numel() < SMALL
        self.shares[name] = Share(len(self.shares) + 1, tensor.shape, tuple(pieces), own, common)
        self.parts[name] = (tensor.detach() if common else tensor.detach().reshape(-1)[own]).clone()

    def gathered(self, name: str, part: Tensor) -> Tensor:
        """The numbers of the tensor that everybody's parts make."""
        share = self.shares[name]
        if share.common:
            return part.detach().view(share.shape)
        flat = torch.empty(share.shape.numel(), dtype=part.dtype, device=part.device)
        flat[share.own] = part.detach()
        with together():
            for rank, place in share.pieces:
                sent = torch.cat([flat[place], flat.new_tensor([share.number])])
                dist.broadcast(sent, rank)
                _need_same(float(sent[-1]), share.number)
                flat[place] = sent[:-1]
        return flat.view(share.shape)

    def summed(self, name: str, whole: Tensor) -> Tensor:
        """The own part of the sum over all processes of a tensor that each has."""
        share, own = self.shares[name], whole.new_zeros(0)
        flat, processes = whole.detach().reshape(-1), dist.get_world_size()
        with together():
            for rank, place in share.pieces:
                sent = torch.cat([flat[place], flat.new_tensor([share.number])])
                dist.reduce(sent, rank)
                if place == share.own:
                    _need_same(float(sent[-1]), processes * share.number)
                    own = sent[:-1]
        return own

    def read(self, name: str) -> Tensor:
        """The whole tensor as a function of the parts; read again at once, it is not gathered again."""
        part = self.parts[name]
        if self.shares[name].common:
            return part
        if (
            self._latest is None
            or self._latest[0] != name
            or self._latest[1].requires_grad != (part.requires_grad and torch.is_grad_enabled())
        ):
            self._latest = None
            self._remember(name, _Gather.apply(part, self, name))  # type: ignore[no-untyped-call]
        assert self._latest is not None
        return self._latest[1]

    def _remember(self, name: str, whole: Tensor) -> None:
        self._latest = name, whole
        self._there = {place: one for place, one in self._there.items() if one[0]() is not None}
        self._there[whole.untyped_storage().data_ptr()] = weakref.ref(whole), name

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of the parameter that a tensor, or what it is a view of, was gathered as."""
        known = self._there.get(tensor.untyped_storage().data_ptr()) if tensor.layout is torch.strided else None
        return None if known is None or known[0]() is None or not tensor.numel() else known[1]

    def forget(self) -> None:
        """Let go of what was gathered last."""
        self._latest = None

    @contextmanager
    def gathered_again(self, count: Callable[[Tensor], None] = lambda _: None) -> Iterator[None]:
        """What torch saves inside for derivatives is not whole parameters, but where to get them; `count` sees the rest."""

        def pack(tensor: Tensor) -> Any:
            name = self.name_of(tensor)
            if name is not None:
                return name, tensor.size(), tensor.stride(), tensor.storage_offset()
            count(tensor)
            return tensor.detach(), tensor._version

        def unpack(saved: Any) -> Tensor:
            if len(saved) == 2:
                tensor, version = saved
                if tensor._version != version:
                    raise RuntimeError("a tensor that is needed for a derivative was changed by an operation in place")
                return tensor  # type: ignore[no-any-return]
            with torch.no_grad():
                if self._latest is None or self._latest[0] != saved[0]:
                    self._latest = None
                    self._remember(saved[0], self.gathered(saved[0], self.parts[saved[0]]))
                assert self._latest is not None
                return self._latest[1].detach().as_strided(*saved[1:])

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield


def _need_same(found: float, number: float) -> None:
    if found != number:
        raise HesscopeError(
            "every process must run the same operations of a sharded model; one asked for another parameter at the same time, "
            "as with layers that are left out for some examples. Gather the model first, and pass it plain."
        )


class GatheredParameters(dict[str, Any]):
    """The parameters of one module, each gathered when it is read."""

    def __init__(self, exchange: Exchange, names: Mapping[str, str | None]) -> None:
        super().__init__(names)
        self._exchange = exchange

    def __getitem__(self, local: str) -> Any:
        name = super().__getitem__(local)
        return None if name is None else self._exchange.read(name)

    def get(self, local: str, default: Any = None) -> Any:
        try:
            return self[local]
        except KeyError:
            return default

    def items(self) -> Any:
        return ItemsView(self)

    def values(self) -> Any:
        return (self[local] for local in self)


class _Gather(torch.autograd.Function):
    """Parts ↦ the whole."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, exchange: Exchange, name: str) -> Tensor:
        ctx.exchange, ctx.name, ctx.idle = exchange, name, exchange.idle
        return exchange.gathered(name, part)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        own = 0 * grads[0] if ctx.idle else grads[0]  # before the sum, which is of the others' too
        return _Sum.apply(own, ctx.exchange, ctx.name), None, None  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    """Every process's whole ↦ the parts of their sum: the adjoint of gathering."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, exchange: Exchange, name: str) -> Tensor:
        ctx.exchange, ctx.name = exchange, name
        return exchange.summed(name, whole)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Gather.apply(grads[0], ctx.exchange, ctx.name), None, None  # type: ignore[no-untyped-call]
