"""Which entries of attention's weights belong to which head: torch's own, Hugging Face's, and adapters around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import refuse
from ..space import ParameterSpace
from .kinds import is_input_major

Parts = tuple[list[str], Tensor]  # the names of a tensor's parts, and the part that each entry belongs to

HEAD_COUNTS = ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads", "encoder_attention_heads")
_HEAD_SIZES = ("head_dim", "head_size", "attention_head_size", "key_value_proj_dim", "d_head")
_BEFORE = ("in_proj", "c_attn", "q_attn", "qkv", "query_key_value", "query", "key", "value", "q", "k", "v")
AFTER = ("out_proj", "o_proj", "c_proj", "wo", "proj", "out", "dense", "o", "out_lin")
_PACKED = ("in_proj", "c_attn", "qkv", "qkv_proj", "Wqkv")  # all queries, then all keys, then all values
_MIXED = ("query_key_value",)  # in some models head by head: which rows are whose is not to be seen
_PER_HEAD = ("relative_attention_bias",)  # T5: a row for each distance, a column for each head


def head_slices(space: ParameterSpace, model: nn.Module) -> dict[str, Parts]:
    """For every selected tensor of an attention module: its parts by head, and the part that each entry belongs to.

    The projection after the heads is split along its inputs, all others along their outputs, in slices of the head
    size; fused projections and fewer key-value heads than query heads then come out right.
    """
    found: dict[str, Parts] = {}
    modules = dict(model.named_modules())
    shapes = dict(zip(space.names, space.shapes, strict=True))
    for path, module in modules.items():
        heads = _count(module)
        after = _after(modules, path, module)
        if not heads or after is None:
            continue
        size = _size(module, after[1], heads)
        projections = {local: child for local, child in module.named_children() if _is_before(local)}
        for local, child in projections.items():
            for name, axis in _tensors(_join(path, local), child, outputs=True):
                _split(found, shapes, name, _join(path, local), axis, size, heads)
        for name, axis in _tensors(*after, outputs=False):
            _split(found, shapes, name, after[0], axis, size)
        for local in module._parameters:
            stem = local.removesuffix("_weight").removesuffix("_bias")
            if _is_before(stem):  # torch's MultiheadAttention
                _split(found, shapes, _join(path, local), _join(path, stem), 0, size, heads)
        for local in _PER_HEAD:
            if isinstance(getattr(module, local, None), nn.Embedding):
                _split(found, shapes, _join(path, f"{local}.weight"), _join(path, local), 1, 1)
    if not found:
        refuse(
            'a partition by "head" needs attention modules with a number of heads and an output projection',
            f"{type(model).__name__} without any among the selected parameters",
            f"Give the module one of {', '.join(HEAD_COUNTS[:5])} and a Linear called {' or '.join(AFTER[:4])}.",
        )
    return found


def along(shape: tuple[int, ...], axis: int, groups: int) -> Tensor:
    """For every entry of a tensor, which of `groups` equal slices along `axis` it lies in."""
    place = torch.arange(shape[axis], device="cpu") // (shape[axis] // groups)
    return place.view([-1 if k == axis else 1 for k in range(len(shape))]).expand(shape)


def _split(
    found: dict[str, Parts],
    shapes: Mapping[str, tuple[int, ...]],
    name: str,
    whose: str,
    axis: int,
    size: int,
    heads: int = 0,
) -> None:
    shape = shapes.get(name)
    if shape is None or axis >= len(shape) or shape[axis] % size:
        return
    groups = shape[axis] // size
    found[name] = ([f"{whose}[{part}]" for part in _called(whose, groups, heads)], along(shape, axis, groups))


def _called(whose: str, groups: int, heads: int) -> list[str]:
    """What the slices of a projection are: heads, or those of the queries, keys and values that are packed in it."""
    local = whose.rpartition(".")[2]
    others, odd = divmod(groups - heads, 2)
    if local in _PACKED and others > 0 and not odd:
        counts = {"query": heads, "key": others, "value": others}
        return [f"{kind} head {h}" for kind, count in counts.items() for h in range(count)]
    return [f"{'slice' if local in _MIXED else 'head'} {g}" for g in range(groups)]


def _tensors(path: str, layer: nn.Module, outputs: bool) -> Iterator[tuple[str, int]]:
    """The tensors of a projection that heads share out, with the axis that counts its outputs or its inputs.

    An adapter (PEFT's LoRA) multiplies B A beside its base layer: the outputs are rows of B, the inputs columns of A; the
    other factor belongs to all heads.
    """
    base = getattr(layer, "base_layer", None)
    if isinstance(base, nn.Module):
        yield from _tensors(f"{path}.base_layer", base, outputs)
        factor = "lora_B" if outputs else "lora_A"
        for local, _ in layer.named_parameters():
            if local.startswith(f"{factor}.") and local.endswith(".weight"):
                yield f"{path}.{local}", 0 if outputs else 1
            elif outputs and local.startswith(("lora_magnitude_vector.", "lora_B.")):
                yield f"{path}.{local}", 0
        return
    transposed = is_input_major(layer)
    yield f"{path}.weight", int(transposed) if outputs else 1 - int(transposed)
    if outputs:
        yield f"{path}.bias", 0


def _is_before(local: str) -> bool:
    stem = local.removesuffix("_proj").removesuffix("_lin").removesuffix("_weight")
    return local in _BEFORE or stem in _BEFORE or stem.removeprefix("w") in _BEFORE


def _count(module: nn.Module) -> int:
    """The number of query heads, where the module or its configuration names one."""
    for place in (module, vars(module).get("config")):
        for key in HEAD_COUNTS:
            value = getattr(place, key, None)
            if isinstance(value, int) and value > 0:
                return value
    return 0


def _after(modules: Mapping[str, nn.Module], path: str, module: nn.Module) -> tuple[str, nn.Module] | None:
    """The projection after the heads: a child, or (BERT) `output.dense` beside the module."""
    names = [local for local, _ in module.named_children()]
    if not any(map(_is_before, (*names, *(local.removesuffix("_weight") for local in module._parameters)))):
        return None
    found = next((local for local in AFTER if local in names), None)
    if found is not None:
        return _join(path, found), modules[_join(path, found)]
    beside = _join(path.rpartition(".")[0], "output.dense")
    return (beside, modules[beside]) if beside in modules else None


def _size(module: nn.Module, after: nn.Module, heads: int) -> int:
    inputs = _inputs(after)
    size = next((getattr(module, key) for key in _HEAD_SIZES if isinstance(getattr(module, key, None), int)), 0)
    return size if size and inputs % size == 0 else max(1, inputs // heads)


def _inputs(layer: Any) -> int:
    base = getattr(layer, "base_layer", layer)
    if isinstance(base, nn.Linear):
        return base.in_features
    weight = getattr(base, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) and weight.ndim == 2 else 0


def _join(path: str, local: str) -> str:
    return f"{path}.{local}" if path else local
