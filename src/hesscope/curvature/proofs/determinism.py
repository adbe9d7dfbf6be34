"""What would make a Hessian meaningless: dropout, batch-norm in training mode, losses that change between calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from ...errors import InputError, refuse
from ..data import tensors_of


def refuse_random_modules(model: nn.Module, batch_statistics: bool = False) -> None:
    """Refuse modules that behave differently in training mode, by name; batch-norm unless that is asked for."""
    bad = []
    for name, module in model.named_modules():
        if not module.training:
            continue
        drops = isinstance(module, _DropoutNd) and module.p > 0
        drops |= isinstance(module, nn.MultiheadAttention | nn.RNNBase) and float(module.dropout) > 0
        # Batch-norm mixes examples; other normalisations only matter where they update running statistics.
        updates = isinstance(module, _NormBase) and (isinstance(module, _BatchNorm) or module.track_running_stats)
        if drops or (updates and not batch_statistics) or isinstance(module, nn.RReLU):
            bad.append(f"{name or '(the model)'} ({type(module).__name__})")
    if bad:
        shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        refuse(
            "the loss must be a fixed function of the parameters",
            f"modules in training mode that are not: {shown}",
            "Call model.eval(), or pass Problem.of(..., freeze=True) to evaluate it in eval mode; "
            "batch_statistics=True keeps batch-norm in training mode.",
        )


@contextmanager
def eval_mode(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Eval mode inside the block if wanted; every module is left as it was found."""
    training = [module for module in model.modules() if module.training] if wanted else []
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def same_value(first: float, second: float) -> bool:
    """Equal up to the rounding of reductions that run in another order."""
    return math.isclose(first, second, rel_tol=1e-6) or not (math.isfinite(first) or math.isfinite(second))


def explain_forward_error(error: Exception, batch: Any, which: str = "the first batch") -> InputError:
    """A model that cannot be run on a batch, said in terms of the arguments."""
    shapes = (
        ", ".join(f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in tensors_of(batch)) or "no tensors"
    )
    hint = _hint_of_types(batch) if any(word in str(error) for word in _OF_TYPES) else ""
    if isinstance(error, TypeError) and "argument" in str(error):
        hint += " A loss takes (outputs, targets), (model, batch), or nothing."
    return InputError(
        f"the model and the loss must run on {which}; got a batch of {shapes} and "
        f"{type(error).__name__}: {error}.{hint} Pass forward=lambda model, batch: (outputs, targets) if the batch has another form."
    )


# What torch says where an operation does not take integers; a key that is missing is no matter of types.
_OF_TYPES = ("dtype", "scalar type", "not implemented for", "Input type")


def _hint_of_types(batch: Any) -> str:
    """For a batch whose first tensor holds integers; of a dict the tensor has a name."""
    named = {f"batch[{key!r}]": value for key, value in batch.items()} if isinstance(batch, Mapping) else {"x": batch}
    name, first = next(((name, t) for name, part in named.items() for t in tensors_of(part)[:1]), ("", None))
    if first is None or first.is_floating_point():
        return ""
    return f" Inputs are integers: a model that does not embed tokens needs {name}.float()."
