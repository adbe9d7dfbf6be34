"""The tensors of a model, by name: what a problem starts from, and what a checkpoint may replace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import listed
from ...errors import refuse
from ...operators.finite import all_finite
from ...operators.tensors import tensor_of
from ...space import ParameterSpace
from ..gradient_mode import plain
from .checkpoint_files import matched


def unwrap(model: Any) -> Any:
    """The module inside DistributedDataParallel or torch.compile."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def snapshot(
    model: nn.Module, params: str | Iterable[str], copied: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copies of the selected trainable parameters, and of everything else the model holds; of a model that is itself a
    copy, its own parameters."""
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        refuse("parameters must have their shapes", "a lazy module that has not run yet", "Run one batch through it.")
    everything = {name: plain(p) if copied else plain(p).clone() for name, p in model.named_parameters()}
    trainable = {
        name: everything[name]
        for name, p in model.named_parameters()
        if p.requires_grad and p.is_floating_point() and p.numel()  # what has no entries has no curvature
    }
    if not everything:
        refuse("the model must have parameters", f"{type(model).__name__} with none", "Check the model.")
    if not trainable and not any(p.requires_grad for p in model.parameters()):
        refuse("at least one parameter must require a gradient", "all frozen", "Set requires_grad_(True) on some.")
    if isinstance(params, Tensor):
        refuse("data is one argument", "a Tensor as params", "Pass Problem.of(model, loss, (inputs, targets)).")
    chosen = ParameterSpace.of(everything).match(params)
    for name, p in model.named_parameters():
        if name in chosen and p.requires_grad:
            _refuse_unusable(name, everything[name])
    selected = {name: trainable[name] for name in chosen if name in trainable}
    if not selected:
        refuse(
            "params must select a trainable parameter",
            f"{params!r}, which selects only frozen ones",
            "Set requires_grad_(True) on them.",
        )
    devices = {str(t.device) for t in selected.values()}
    if len(devices) > 1:
        refuse(
            "the selected parameters must be on one device",
            f"{sorted(devices)}",
            "Select the part on one device with params=.",
        )
    fixed = {name: t for name, t in everything.items() if name not in selected}
    fixed |= {name: plain(b).clone() for name, b in model.named_buffers()}
    return selected, fixed


def _refuse_unusable(name: str, tensor: Tensor) -> None:
    """Parameters in which there is no Hessian."""
    if tensor.is_meta:
        refuse(
            "parameters must have values", f"{name!r} on the meta device", "Call model.to_empty(device='cpu') and load."
        )
    if tensor.is_complex():
        refuse(
            "parameters must be real",
            f"{name!r} in {str(tensor.dtype).removeprefix('torch.')}",
            "Leave it out with params=, or hold its real and imaginary parts apart.",
        )
    if tensor.dtype == torch.float16:
        refuse(
            "parameters must have at least bfloat16's range",
            f"{name!r} in float16",
            "Use model.float() or model.bfloat16().",
        )
    if not all_finite(tensor):
        refuse("parameters must be finite", f"nan or inf in {name!r}", "Load another checkpoint: this one diverged.")


def common_type(tensors: Iterable[Tensor]) -> torch.dtype:
    """The type that vectors over all of them have; no products are summed in bfloat16."""
    found = torch.bfloat16
    for tensor in tensors:
        found = torch.promote_types(found, tensor.dtype)
    return torch.float32 if found == torch.bfloat16 else found


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another floating-point type; other tensors as they are."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def from_checkpoint(
    model: nn.Module, state: Mapping[str, Tensor], own: Mapping[str, Tensor], needed: Iterable[str]
) -> dict[str, Tensor]:
    """The tensors of `own` that a state dict replaces, by their names there; tied names are one tensor.

    All that are `needed` must be among them.
    """
    if not isinstance(state, Mapping):
        refuse(
            "values must be given by name", type(state).__name__, "Pass a state dict, or problem.space.unpack(vector)."
        )
    names, learned = _first_names(model), {name for name, _ in model.named_parameters()}
    found: dict[str, Tensor] = {}
    for name, value in matched(state, names).items():
        if str(name).endswith("_extra_state"):
            continue
        key = names.get(name)
        if key is None or key not in own:
            shown = listed(own, 8)
            refuse("every name must be that of a parameter or buffer", f"{name!r}", f"The model has: {shown}.")
        value = _tensor(name, value)
        if tuple(value.shape) != tuple(own[key].shape):
            refuse(
                f"{name!r} must have the shape {tuple(own[key].shape)}",
                f"{tuple(value.shape)}",
                "Is the checkpoint that of another model?",
            )
        if key in learned:
            _refuse_unusable(name, value)
        new = plain(value).to(own[key], copy=True)
        if key in found and not torch.equal(found[key], new):
            refuse("tied tensors must be equal", f"another value for {name!r} than for {key!r}", "Give one of them.")
        found[key] = new
    missing = [name for name in needed if name not in found]
    if missing:
        refuse(
            "a checkpoint must hold every parameter that it is to replace",
            f"{len(found)} names, without {listed(missing)}",
            "Is it that of another model? To replace some parameters only, use problem.at({...}, partial=True).",
        )
    return found


def names_in_checkpoints(model: nn.Module) -> list[str]:
    """The names that a whole checkpoint of this model has, each tensor once; counters of batches may be missing."""
    first = _first_names(model)
    kept = (first[name] for name in model.state_dict(keep_vars=True) if name in first)
    return [name for name in dict.fromkeys(kept) if not name.endswith("num_batches_tracked")]


def _tensor(name: str, value: Any) -> Tensor:
    try:
        return tensor_of(value)
    except (TypeError, ValueError, RuntimeError):
        refuse(f"{name!r} must be a tensor", type(value).__name__, "Use torch.as_tensor on numbers.")


def _first_names(model: nn.Module) -> dict[str, str]:
    """Every name of every parameter and buffer, with the first name of the same tensor."""
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            found[name] = first.setdefault(id(tensor), name)
    return found


def digest(tensors: Mapping[str, Tensor]) -> int:
    """A number of 62 bits that two sets of named tensors share only where they are equal."""
    total = hashlib.sha256()
    for name, tensor in tensors.items():
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(total.digest()[:8], "little") >> 2
