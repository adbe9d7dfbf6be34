"""Fused operations of torch whose second derivatives are wrong, replaced by plain ones while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.overrides import TorchFunctionMode


class PlainOperations(TorchFunctionMode):
    """The same values by operations whose derivatives are right: `torch._weight_norm` has a wrong second one (torch
    2.13: 7-40 % off)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch._weight_norm:
            return _weight_norm(*args, **kwargs)
        return func(*args, **kwargs)


def plain_operations(model: nn.Module) -> AbstractContextManager[Any]:
    """PlainOperations where this model needs them."""
    return PlainOperations() if any(_has_weight_norm(module) for module in model.modules()) else nullcontext()


def _has_weight_norm(module: nn.Module) -> bool:
    hooks = module._forward_pre_hooks.values()
    return isinstance(module, _WeightNorm) or any(type(hook).__name__ == "WeightNorm" for hook in hooks)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v/|v|, with the norm over all dimensions but `dim` (-1: over all)."""
    dims = [d for d in range(v.ndim) if dim == -1 or d != dim % v.ndim]
    return v * (g / v.square().sum(dims, keepdim=True).sqrt()) if dims else v * (g / v.abs())


class _PaddingRows(TorchFunctionMode):
    """Remembers which weights F.embedding looks up with a padding row, and which row that is."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, int]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.embedding and (row := args[2] if len(args) > 2 else kwargs.get("padding_idx")) is not None:
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            self.rows.append((weight.data_ptr(), row % len(weight)))
        return func(*args, **kwargs)


def padding_rows(run: Callable[[Mapping[str, Tensor]], Any], parameters: Mapping[str, Tensor]) -> dict[str, set[int]]:
    """The rows of embeddings that torch holds constant while `run(parameters)` looks them up, by parameter name."""
    with _PaddingRows() as found:
        run(parameters)
    names = {tensor.data_ptr(): name for name, tensor in parameters.items()}
    constant: dict[str, set[int]] = {}
    for pointer, row in found.rows:
        if pointer in names:
            constant.setdefault(names[pointer], set()).add(row)
    return constant
