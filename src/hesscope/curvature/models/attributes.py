"""What modules keep between passes besides parameters and buffers: caches, counters, lists of what they saw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from .copies import tensors_in

_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, hooks and modes, which have their own ways
_CONTAINERS = (list, dict, set)


@contextmanager
def attributes_kept(model: nn.Module) -> Iterator[None]:
    """Give the attributes of all modules back as they were, so that no pass sees what another one left.

    A model that keeps a derived weight or a count is a fixed function only where every pass begins alike, and its
    derivative is that of the loss only where nothing was computed from other parameters before.
    """
    kept = [(vars(module), vars(module).copy(), _contents(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for present, before, contents in kept:
            _restore(present, before, contents)


def computed_before(model: nn.Module, copy: nn.Module) -> dict[str, Tensor]:
    """Tensors in the attributes of a model that were computed from its parameters before, and what a copy has for them:
    a derived weight that is kept, a view that was taken in `__init__`."""
    found: dict[str, Tensor] = {}
    for (path, theirs), ours in zip(model.named_modules(), copy.modules(), strict=False):
        for name, value in _attributes(theirs):
            pairs = zip(tensors_in(value), tensors_in(vars(ours).get(name)), strict=False)
            for number, (tensor, copied) in enumerate(pairs):
                if tensor.grad_fn is not None:
                    found[f"{path}.{name}".lstrip(".") + f" {2 * number}"] = tensor
                    found[f"{path}.{name}".lstrip(".") + f" {2 * number + 1}"] = copied
    return found


def _attributes(module: nn.Module) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(module).items() if name not in _OWN]


def _contents(attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Plain containers, which may change in place, each with a copy."""
    return [(v, v.copy()) for name, v in attributes.items() if type(v) in _CONTAINERS and name not in _OWN]


def _restore(present: dict[str, Any], before: dict[str, Any], contents: list[tuple[Any, Any]]) -> None:
    for name in [name for name in present if name not in before and name not in _OWN]:
        del present[name]
    for name, value in before.items():
        if present.get(name, _OWN) is not value and name not in _OWN:
            present[name] = value
    for value, copy in contents:
        if not _same(value, copy):
            value.clear()
            value.extend(copy) if isinstance(value, list) else value.update(copy)


def _same(value: Any, contents: Any) -> bool:
    """Whether a container holds the very same things, in the same order."""
    if len(value) != len(contents):
        return False
    if isinstance(value, dict):
        return all(a is b and value[a] is contents[b] for a, b in zip(value, contents, strict=True))
    return all(a is b for a, b in zip(value, contents, strict=True))
