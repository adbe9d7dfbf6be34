"""How a batch is run where nobody says otherwise, and whether a language model shifts its labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import refuse

Forward = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
_TARGET_KEYS = ("labels", "label", "targets", "target", "y")
_IGNORED = -100  # what Hugging Face models leave out of their loss


class DefaultForward:
    """`model(*inputs), targets` for tuples; `model(**inputs), labels` for dicts.

    A causal language model compares its output at one position with the label of the next. Whether a model does is
    found by comparing its own `.loss` with both readings of its logits, on the first batch that tells.
    """

    def __init__(self) -> None:
        self._shift: int | None = None

    def __call__(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        _need_tensors(batch)
        if isinstance(batch, Mapping):
            key = next((key for key in _TARGET_KEYS if key in batch), None)
            if key is None:
                refuse(f"a dict batch must have one of {_TARGET_KEYS}", f"keys {sorted(batch)}", "Or pass forward=.")
            if key == "labels" and self._shift is None:
                self._shift = _shift_of(_with_labels(model, batch), batch[key])
            outputs = model(**{name: value for name, value in batch.items() if name != key})
            logits = getattr(outputs, "logits", outputs)
            return (logits[:, :-1], batch[key][:, 1:]) if self._shift else (logits, batch[key])
        if isinstance(batch, tuple | list) and len(batch) >= 2:
            outputs = model(*batch[:-1])
            return getattr(outputs, "logits", outputs), batch[-1]
        refuse(
            "a batch must be (inputs, ..., targets) or a dict with targets",
            f"{type(batch).__name__}",
            "Or pass forward=.",
        )


def _need_tensors(batch: Any) -> None:
    """No data, and data of NumPy, in words of their own."""
    if batch is None:
        refuse("this loss needs data", "None", "Pass data=(inputs, targets).")
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else [batch]
    if any(isinstance(part, np.ndarray) for part in parts):
        refuse("inputs and targets must be tensors", "ndarray", "Use torch.from_numpy(array).")


def _with_labels(model: nn.Module, batch: Mapping[str, Any]) -> Any:
    """What the model itself makes of inputs and labels; None where it takes none."""
    parameters = inspect.signature(model.forward).parameters.values()
    if not any(p.name == "labels" or p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    try:
        return model(**batch)
    except TypeError:
        return None  # a wrapper that hands everything on, to a model without labels


def _shift_of(outputs: Any, labels: Tensor) -> int | None:
    """By how many positions the model moves the labels in its own loss; None where this batch does not tell."""
    logits, own = getattr(outputs, "logits", None), getattr(outputs, "loss", None)
    if not isinstance(logits, Tensor) or not isinstance(own, Tensor) or logits.ndim != 3 or labels.ndim != 2:
        return 0
    if not bool(torch.isfinite(own)):
        return None
    own = own.detach().double()
    readings = [(logits, labels), (logits[:, :-1], labels[:, 1:])]
    values = [
        F.cross_entropy(z.detach().double().flatten(0, 1), t.flatten(), ignore_index=_IGNORED) for z, t in readings
    ]
    fits = [shift for shift, value in enumerate(values) if torch.isclose(value, own, rtol=1e-4, atol=0)]
    if len(fits) != 1:
        refuse(
            "the labels of a language model must be read as the model itself reads them",
            f"a model whose loss is {float(own):.6g}, where its logits and labels give {float(values[0]):.6g}, and "
            f"{float(values[1]):.6g} with the labels of the next position",
            "Pass forward=lambda model, batch: (logits, labels), shifted as you train.",
        )
    return fits[0]
