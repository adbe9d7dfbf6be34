"""Attention as one closed form with its first and second derivatives: scores come in blocks that fit a cache, and go.

With P = softmax(s Q Kᵀ + M) and O = P V, the gradient along O̅ is V̅ = Pᵀ O̅, Q̅ = s D K, K̅ = s Dᵀ Q, where D = P ∘ (O̅ Vᵀ - r)
and r are the row sums of P ∘ O̅ Vᵀ. The derivative of those three: docs/theory/products.md.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

LEAST_SCORES = 128 * 128  # of one head: below, the scores are no burden
_ROWS = 256  # queries at a time
_BLOCK_BYTES = 4_000_000  # of scores; about eight tensors of this size live at once
_MANY_HEADS = inspect.signature(F.multi_head_attention_forward)
_Three = tuple[Tensor, Tensor, Tensor]
_Four = tuple[Tensor, Tensor, Tensor, Tensor]


class ClosedFormAttention(TorchFunctionMode):
    """`F.scaled_dot_product_attention` of long sequences without a graph through its scores, also where
    `nn.MultiheadAttention` calls it; all else as it is."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            found = _given(*args, **kwargs)
            if found is not None:
                return found
        if func is F.multi_head_attention_forward:
            return _many_heads(func, args, kwargs)
        return func(*args, **kwargs)


def _attend(*args: Any, **kwargs: Any) -> Tensor:
    found = _given(*args, **kwargs)
    return F.scaled_dot_product_attention(*args, **kwargs) if found is None else found


def _many_heads(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`F.multi_head_attention_forward` with the closed form inside, which no mode sees: torch's own code, given another
    function of this one name. Weights that are asked for come from torch; their graph goes where nobody uses them."""
    bound = _MANY_HEADS.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    replaced = func.__globals__.get("scaled_dot_product_attention") is not torch._C._nn.scaled_dot_product_attention
    axis = -2 if given["query"].ndim == 2 else 0
    short = given["query"].shape[axis] * given["key"].shape[axis] < LEAST_SCORES
    if replaced or short or (given["training"] and given["dropout_p"]):
        return func(*args, **kwargs)
    names = {**func.__globals__, "scaled_dot_product_attention": _attend}
    ours = FunctionType(func.__code__, names, func.__name__, func.__defaults__)
    if not given["need_weights"]:
        return ours(*args, **kwargs)
    plain = func(*args, **kwargs)
    if not bool(torch.isfinite(plain[0]).all()):
        return plain  # a query that may see nothing: not a number with weights, zero without
    # Only without weights a mask may be left to the word that it is causal.
    return ours(**{**given, "need_weights": False, "is_causal": False})[0], plain[1]


def _given(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """The attention that torch is asked for, or None where it is torch's own to give."""
    if any(type(t) not in (Tensor, torch.nn.Parameter) for t in (query, key, value)) or _transformed():
        return None
    if enable_gqa and query.ndim >= 3 and key.ndim == value.ndim == query.ndim and query.shape[-3] % key.shape[-3] == 0:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    lead, (rows, width), columns = query.shape[:-2], query.shape[-2:], key.shape[-2]
    plain = query.dtype in (torch.float32, torch.float64) and query.dtype == key.dtype == value.dtype
    if not plain or dropout_p or rows * columns < LEAST_SCORES or torch.is_autocast_enabled(query.device.type):
        return None
    if key.shape[:-2] != lead or value.shape[:-2] != lead or key.shape[-1] != width or value.shape[-2] != columns:
        return None
    if attn_mask is not None and (is_causal or attn_mask.requires_grad):
        return None
    mask = places = None
    if attn_mask is not None:
        mask, places = _compact(attn_mask, lead, columns)
    shape = _Shape(1 / math.sqrt(width) if scale is None else scale, is_causal, places)
    flat = (t.reshape(-1, *t.shape[-2:]) for t in (query, key, value))
    out: Tensor = _Attention.apply(*flat, mask, shape)  # type: ignore[no-untyped-call]
    return out.view(*lead, rows, value.shape[-1])


def _transformed() -> bool:
    """Whether torch.func is at work, which knows nothing of functions with derivatives of their own."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _compact(mask: Tensor, lead: torch.Size, columns: int) -> tuple[Tensor, Tensor]:
    """A mask as `(masks, rows or 1, columns)` without the copies that heads share, and which of them each head has."""
    mask = mask.detach()
    mask = mask.expand(*mask.shape[:-1], columns) if mask.ndim > 1 else mask.expand(1, columns)
    shared = [slice(0, 1) if stride == 0 else slice(None) for stride in mask.stride()[:-1]]  # expanded by the caller
    mask = mask[tuple(shared)]
    own = mask.shape[:-2]
    places = torch.arange(own.numel(), device=mask.device).view(own).expand(lead).reshape(-1)
    return mask.reshape(-1, *mask.shape[-2:]), places


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)


@dataclass(frozen=True)
class _Block:
    """Some heads, some of their queries, and the keys that those can see."""

    heads: slice
    rows: slice
    keys: slice

    def at_rows(self, t: Tensor) -> Tensor:
        return t[self.heads, self.rows]

    def at_keys(self, t: Tensor) -> Tensor:
        return t[self.heads, self.keys]


@dataclass(frozen=True)
class _Shape:
    """What the scores are made with beside queries, keys and a mask."""

    scale: float
    causal: bool
    masks: Tensor | None = None  # which of the masks each head has

    def blocks(self, q: Tensor, k: Tensor) -> Iterator[_Block]:
        heads, rows, columns = len(q), q.shape[1], k.shape[1]
        most = max(1, _BLOCK_BYTES // (min(rows, _ROWS) * columns * q.element_size()))
        for head in range(0, heads, most):
            for row in range(0, rows, _ROWS):
                last = min(row + _ROWS, rows)
                seen = min(last, columns) if self.causal else columns
                yield _Block(slice(head, head + most), slice(row, last), slice(0, seen))

    def weights(self, block: _Block, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """P of a block; a query that may see no key has weights of zero, as in torch."""
        scores = torch.bmm(q, k.transpose(1, 2)).mul_(self.scale)
        if self.causal:
            first = min(block.rows.start, block.keys.stop)  # every query of the block sees the keys before
            rows = torch.arange(block.rows.start, block.rows.stop, device=q.device)
            keys = torch.arange(first, block.keys.stop, device=q.device)
            scores[..., first:].masked_fill_(keys > rows[:, None], -math.inf)
        if mask is None:
            return torch.softmax(scores, -1)
        scores += self.mask(mask, block, scores.dtype)
        return torch.softmax(scores, -1).masked_fill_((scores == -math.inf).all(-1, keepdim=True), 0.0)

    def mask(self, mask: Tensor, block: _Block, dtype: torch.dtype) -> Tensor:
        """What is added to the scores of a block."""
        assert self.masks is not None
        rows = block.rows if mask.shape[1] > 1 else slice(None)
        return _additive(mask[:, rows, block.keys][self.masks[block.heads]], dtype)


def _centred(p: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """P ∘ (X - r) with the row sums r of P ∘ X, and r: the derivative of softmax."""
    product = p * x
    r = product.sum(-1, keepdim=True)
    return product.addcmul_(p, r, value=-1), r


class _Attention(torch.autograd.Function):
    """(Q, K, V) ↦ O."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, shape: _Shape) -> Tensor:
        ctx.save_for_backward(q, k, v, mask)
        ctx.shape = shape
        out = q.new_empty(*q.shape[:2], v.shape[2])
        for block in shape.blocks(q, k):
            p = shape.weights(block, block.at_rows(q), block.at_keys(k), mask)
            block.at_rows(out)[:] = torch.bmm(p, block.at_keys(v))
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        q, k, v, mask = ctx.saved_tensors
        return *_Gradient.apply(q, k, v, slope, mask, ctx.shape), None, None  # type: ignore[no-untyped-call]


class _Gradient(torch.autograd.Function):
    """(Q, K, V, O̅) ↦ (Q̅, K̅, V̅)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, slope: Tensor, mask: Tensor | None, shape: _Shape) -> Any:
        ctx.save_for_backward(q, k, v, slope, mask)
        ctx.shape = shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for block in shape.blocks(q, k):
            rows, keys = block.at_rows, block.at_keys
            p = shape.weights(block, rows(q), keys(k), mask)
            keys(dv).add_(torch.bmm(p.transpose(1, 2), rows(slope)))
            d, _ = _centred(p, torch.bmm(rows(slope), keys(v).transpose(1, 2)))
            rows(dq)[:] = torch.bmm(d, keys(k)).mul_(shape.scale)
            keys(dk).add_(torch.bmm(d.transpose(1, 2), rows(q)), alpha=shape.scale)
        return dq, dk, dv

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> Any:
        q, k, v, slope, mask = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants a third derivative
            return *_by_autograd((q, k, v, slope), mask, ctx.shape, (a, b, c)), None, None
        wanted = [_wanted(ctx, index) for index in range(4)]
        return *_bent((q, k, v, slope), mask, ctx.shape, (a, b, c), wanted), None, None


def _bent(
    at: _Four, mask: Tensor | None, shape: _Shape, along: _Three, wanted: list[bool]
) -> tuple[Tensor | None, ...]:
    """The gradient of <a, Q̅> + <b, K̅> + <c, V̅> in Q, K, V and O̅; where only O̅ is wanted, for less than half the price."""
    (q, k, v, slope), (a, b, c) = at, along
    through_scores = any(wanted[:3])
    outs = [torch.zeros_like(t) if want else None for t, want in zip(at, wanted, strict=True)]
    into_q, into_k, into_v, into_slope = outs
    for block in shape.blocks(q, k):
        rows, keys = block.at_rows, block.at_keys
        p = shape.weights(block, rows(q), keys(k), mask)
        w = torch.bmm(rows(a), keys(k).transpose(1, 2)).baddbmm_(rows(q), keys(b).transpose(1, 2)).mul_(shape.scale)
        e, w_mean = _centred(p, w)
        if into_slope is not None:
            rows(into_slope)[:] = torch.bmm(e, keys(v)).baddbmm_(p, keys(c))
        if not through_scores:
            continue
        if into_v is not None:
            keys(into_v).add_(torch.bmm(e.transpose(1, 2), rows(slope)))
        dp = torch.bmm(rows(slope), keys(v).transpose(1, 2))
        d, dp_mean = _centred(p, dp)
        in_p = (w - w_mean).mul_(dp - dp_mean).baddbmm_(rows(slope), keys(c).transpose(1, 2))
        bent, _ = _centred(p, in_p)
        if into_q is not None:
            rows(into_q)[:] = torch.bmm(bent, keys(k)).baddbmm_(d, keys(b)).mul_(shape.scale)
        if into_k is not None:
            both = torch.bmm(bent.transpose(1, 2), rows(q)).baddbmm_(d.transpose(1, 2), rows(a))
            keys(into_k).add_(both, alpha=shape.scale)
    return tuple(outs)


def _by_autograd(at: _Four, mask: Tensor | None, shape: _Shape, along: _Three) -> tuple[Tensor | None, ...]:
    """The same by plain operations, which can be differentiated again."""
    q, k, v, slope = (t.view_as(t) for t in at)  # the slope may itself have come from queries and keys
    scores = shape.scale * q @ k.transpose(1, 2)
    if shape.causal:
        seen = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None:
        everything = _Block(slice(None), slice(None), slice(None))
        scores = scores + shape.mask(mask, everything, scores.dtype)
    unseeing = (scores == -math.inf).all(-1, keepdim=True)
    p = torch.softmax(scores.masked_fill(unseeing, 0.0), -1).masked_fill(unseeing, 0.0)
    first = torch.autograd.grad(p @ v, (q, k, v), slope, create_graph=True)
    return torch.autograd.grad(first, (q, k, v, slope), along, create_graph=True, allow_unused=True)


def _wanted(ctx: Any, index: int) -> bool:
    """Whether the backward pass that is running goes on into this input; yes where torch does not tell."""
    node = ctx.next_functions[index][0]
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return True
