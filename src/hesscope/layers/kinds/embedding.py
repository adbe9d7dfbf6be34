"""Embeddings: rows of a table, picked by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import ExampleSquares, Kind, Roles, argument

_NAMES = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")


class Embedding(Kind):
    """z = W[tokens]; the row of `padding_idx` is a constant to torch, and so it is here."""

    name = "embedding"
    functions = (F.embedding,)
    modules = (nn.Embedding,)
    any_axes = True

    def roles(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Roles | None:
        tokens, weight, padding, max_norm, _, by_frequency, _ = (
            argument(args, kwargs, i, name) for i, name in enumerate(_NAMES)
        )
        if max_norm is not None or by_frequency:
            return None  # the first changes the weight, the second its gradient
        options = {"padding": None if padding is None else padding % len(weight)}

        def rows(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
            assert w is not None
            return F.embedding(x, w, padding)

        return Roles(tokens, weight, None, rows, options)

    def output_change(self, roles: Roles, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        assert weight is not None
        change = weight.clone()
        if roles.options["padding"] is not None:
            change[roles.options["padding"]] = 0
        return roles.apply(change, None)

    def example_squares(self, roles: Roles, entries: bool) -> ExampleSquares:
        return EmbeddingSquares(roles, entries)


class EmbeddingSquares(ExampleSquares):
    """Gradients of one example live on the rows of its own tokens: positions of the same token are summed first."""

    def __init__(self, roles: Roles, entries: bool) -> None:
        super().__init__(roles, entries)
        weight = roles.weight
        assert weight is not None
        tokens = roles.x.reshape(len(roles.x), -1)
        example = torch.arange(len(tokens), device=tokens.device)[:, None].expand_as(tokens)
        pairs, self.place = torch.unique(torch.stack([example, tokens], -1).flatten(0, 1), dim=0, return_inverse=True)
        self.owner, self.token = pairs.unbind(-1)
        self.counted = (
            torch.ones_like(self.token)
            if roles.options["padding"] is None
            else (self.token != roles.options["padding"])
        )
        self.total = weight.new_zeros(len(weight) if entries else len(tokens), weight.shape[1] if entries else 1)

    def add(self, delta: Tensor) -> None:
        rows = delta.reshape(-1, delta.shape[-1])
        summed = rows.new_zeros(len(self.token), rows.shape[-1]).index_add_(0, self.place, rows)
        squares = summed.square_() * self.counted[:, None]
        if self.entries:
            self.total.index_add_(0, self.token, squares)
        else:
            self.total.index_add_(0, self.owner, squares.sum(-1, keepdim=True))

    def result(self) -> dict[str, Tensor]:
        return {"weight": self.total if self.entries else self.total.squeeze(-1)}
