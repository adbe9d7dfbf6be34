"""Run a module at other parameters and buffers: `functional_call` that leaves shared modules as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def call_at(module: nn.Module, state: Mapping[str, Tensor], args: Any, kwargs: Any = None) -> Any:
    """module(*args, **kwargs) with its tensors replaced by name, tied ones everywhere they occur.

    `functional_call` replaces a tied tensor once per name. A module that is registered under two
    names then gets the same place replaced twice, and the second restoration puts the replacement
    back instead of the module's own parameter; so each place is named once here.
    """
    places: dict[int, list[str]] = {}
    for path, part in module.named_modules():
        for local, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                places.setdefault(id(tensor), []).append(f"{path}.{local}" if path else local)
    everywhere: dict[str, Tensor] = {}
    for names in places.values():
        given = next((state[name] for name in names if name in state), None)
        if given is not None:
            everywhere.update(dict.fromkeys(names, given))
    return functional_call(module, everywhere, args, kwargs, tie_weights=False)
