"""Linear layers that compute something else for a while, without touching a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .kinds import attention

LinearMap = Callable[[Tensor], Tensor]


class SubstitutedLinears(TorchFunctionMode):
    """While it is active, `F.linear` with one of these tensors as its weight calls the given map of the input instead.

    It holds for this thread and ends with the block, also where an evaluation raises: nothing is left behind.
    """

    def __init__(self, maps: Mapping[str, LinearMap], parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._held = {name: parameters[name] for name in maps}  # so that no other tensor can take an id
        self._map_of = {id(self._held[name]): change for name, change in maps.items()}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            if id(weight) in self._map_of:
                return self._map_of[id(weight)](args[0] if args else kwargs["input"])
        if func is F.multi_head_attention_forward:
            with self:
                taken_apart = attention(args, kwargs)
            if taken_apart is not None:
                return taken_apart
        return func(*args, **kwargs)
