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
        if getattr(config, "_experts_implementation", None) is not None:
            config._experts_implementation = "eager"  # grouped products have no second derivative
    _remove_gradient_switches(copy, original)


def _remove_gradient_switches(copy: nn.Module, original: nn.Module) -> None:
    """Checkpointing and PEFT let hooks switch on the gradient of embeddings, which only the old kind of checkpointing
    needs; outputs would then depend on something where no parameter is asked for."""
    theirs = {id(module._forward_hooks) for module in original.modules()}
    for module in copy.modules():
        hooks = module._forward_hooks
        for key, hook in list(hooks.items()):
            if getattr(hook, "__name__", "") == "make_inputs_require_grads" and id(hooks) not in theirs:
                del hooks[key]


def _configs(model: nn.Module) -> list[Any]:
    found = {id(config): config for module in model.modules() if _is_config(config := vars(module).get("config"))}
    return list(found.values())


def _is_config(value: Any) -> bool:
    return any(kind.__name__ in ("PretrainedConfig", "PreTrainedConfig") for kind in type(value).__mro__)
