"""nn.MultiheadAttention, whose projections never run as modules: the same computation as visible linear maps."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor | None] | None:
    """`F.multi_head_attention_forward` with its projections as calls of `F.linear`; None for its rarer forms.

    Those are appended key and value rows, zero attention and dropout: they are left to torch, and their projections
    then count as not seen.
    """
    given = _SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    a = given.arguments
    rare = a["bias_k"] is not None or a["bias_v"] is not None or a["add_zero_attn"] or a["static_k"] is not None
    if rare or a["static_v"] is not None or (a["training"] and a["dropout_p"] > 0) or a["query"].ndim != 3:
        return None
    q, k, v = _projections(a)
    if q is None or k is None or v is None:
        return None
    length, batch, width = q.shape
    heads = a["num_heads"]
    q, k, v = (t.reshape(t.shape[0], batch * heads, width // heads).transpose(0, 1) for t in (q, k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(width // heads)
    scores = _masked(scores.view(batch, heads, length, -1), a)
    weights = torch.softmax(scores, -1)
    mixed = (weights.view(batch * heads, length, -1) @ v).transpose(0, 1).reshape(length, batch, width)
    out = F.linear(mixed, a["out_proj_weight"], a["out_proj_bias"])
    if not a["need_weights"]:
        return out, None
    return out, weights.mean(1) if a["average_attn_weights"] else weights


def _projections(a: dict[str, Any]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    query, key, value, bias = a["query"], a["key"], a["value"], a["in_proj_bias"]
    if a["use_separate_proj_weight"]:
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        named = ((query, "q_proj_weight"), (key, "k_proj_weight"), (value, "v_proj_weight"))
        q, k, v = (F.linear(x, a[name], b) for (x, name), b in zip(named, biases, strict=True))
        return q, k, v
    if query is key and key is value:
        q, k, v = F.linear(query, a["in_proj_weight"], bias).chunk(3, -1)
        return q, k, v
    return None, None, None  # one weight, several inputs


def _masked(scores: Tensor, a: dict[str, Any]) -> Tensor:
    """Scores `(batch, heads, length, keys)` with masks added; a boolean mask is true where attention is not allowed."""
    mask, padding = a["attn_mask"], a["key_padding_mask"]
    if mask is not None:
        shaped = mask if mask.ndim == 2 else mask.view(scores.shape)
        scores = _apply(scores, shaped)
    if padding is not None:
        scores = _apply(scores, padding[:, None, None, :])
    return scores


def _apply(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else scores + mask
