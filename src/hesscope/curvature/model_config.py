"""Settings of Hugging Face models that must not stand in the way of derivatives; of the private copy only."""

from __future__ import annotations

from typing import Any

from torch import nn

_DIFFERENTIABLE = ("eager", "sdpa")


def settle_configs(copy: nn.Module, original: nn.Module) -> None:
    """No cache of keys and values, outputs by name, and attention that has a second derivative: none changes a value."""
    theirs = {id(config) for config in _configs(original)}
    for config in _configs(copy):
        if id(config) in theirs:
            continue
        for name, value in (("use_cache", False), ("return_dict", True)):
            if hasattr(config, name):
                setattr(config, name, value)
        attention = getattr(config, "_attn_implementation", None)
        if isinstance(attention, str) and attention not in _DIFFERENTIABLE:
            config._attn_implementation = "eager"


def _configs(model: nn.Module) -> list[Any]:
    found = {id(config): config for module in model.modules() if _is_config(config := vars(module).get("config"))}
    return list(found.values())


def _is_config(value: Any) -> bool:
    return any(kind.__name__ in ("PretrainedConfig", "PreTrainedConfig") for kind in type(value).__mro__)
