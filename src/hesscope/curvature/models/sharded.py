"""Models whose parameters are spread over processes (`fully_shard`): the plain model again, whole, for one problem."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import refuse
from ..distributed import together

_STATE = "FSDPState"


def unsharded(model: nn.Module, distributed: bool) -> nn.Module:
    """A copy of the model as it was before `fully_shard`, with whole parameters; the model itself where nothing is sharded.

    Every process must call this. Double backward then runs through plain operations: each process on its part of the
    data, with its part of every Krylov vector.
    """
    _refuse_flat(model)
    # Between a forward and a backward pass parameters may be whole for a while; the module is still another one.
    wrapped = any(_first_class(type(module)) is not type(module) for module in model.modules())
    if not wrapped and not any(_is_sharded(p) for p in model.parameters()):
        return model
    if not distributed:
        refuse(
            "a model that is sharded over processes needs distributed=True",
            f"{type(model).__name__} with sharded parameters",
            "Pass distributed=True and each process's part of the data.",
        )
    whole: dict[int, Tensor] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            refuse("parameters must have values", f"{name!r} on the meta device", "Load the checkpoint first.")
        with together(), torch.no_grad():
            value = tensor.full_tensor() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]
            held = tensor.to_local() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]
            if value.untyped_storage().data_ptr() == held.untyped_storage().data_ptr():
                value = value.clone()  # what is not spread is theirs
        whole[id(tensor)] = nn.Parameter(value.detach(), tensor.requires_grad) if _learned(tensor) else value.detach()
    return _rebuilt(model, whole, {})


def _rebuilt(module: nn.Module, whole: dict[int, Tensor], made: dict[int, nn.Module]) -> nn.Module:
    """The module with its first class, without the hooks that gather and scatter; what was tied stays tied."""
    if id(module) in made:
        return made[id(module)]
    fresh: Any = object.__new__(_first_class(type(module)))
    made[id(module)] = fresh
    ours = _hooks_of_sharding(module)
    held = {
        name: value
        for name, value in vars(module).items()
        if name not in ("_parameters", "_buffers", "_modules", "_fsdp_param_group")
    }
    for name, value in held.items():
        if name.startswith(("_forward_hooks", "_forward_pre_hooks")) and isinstance(value, dict):
            value = type(value)((key, hook) for key, hook in value.items() if key not in ours)
        else:
            value = copy.copy(value) if isinstance(value, dict | list | set) else value
        fresh.__dict__[name] = value
    for name in ("_parameters", "_buffers"):
        tensors = getattr(module, name)
        fresh.__dict__[name] = {key: None if t is None else whole[id(t)] for key, t in tensors.items()}
    fresh.__dict__["_modules"] = {
        key: None if child is None else _rebuilt(child, whole, made) for key, child in module._modules.items()
    }
    return fresh  # type: ignore[no-any-return]


def _hooks_of_sharding(module: nn.Module) -> set[int]:
    hooks = (*module._forward_pre_hooks.items(), *module._forward_hooks.items())
    return {key for key, hook in hooks if _owner(hook) == _STATE}


def _owner(hook: Any) -> str:
    """The class of the object whose method a hook is, also below decorators."""
    while not hasattr(hook, "__self__") and hasattr(hook, "__wrapped__"):
        hook = hook.__wrapped__
    return type(getattr(hook, "__self__", None)).__name__


def _first_class(kind: type) -> type:
    return kind.__mro__[2] if any(base.__name__ == "FSDPModule" for base in kind.__bases__) else kind


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")


def _learned(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)


def _refuse_flat(model: nn.Module) -> None:
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        refuse(
            "sharded models must keep their parameters apart",
            "FullyShardedDataParallel, which flattens them",
            "Use torch.distributed.fsdp.fully_shard instead.",
        )
