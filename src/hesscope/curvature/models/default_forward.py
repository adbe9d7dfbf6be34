"""How a batch is run where nobody says otherwise, and whether a language model shifts its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import refuse
from ..data import first_examples
from .inputs import field, logits_of, run_with_answers, run_without_answers, takes_labels, with_graph
from .own_loss import read

Forward = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
_TARGET_KEYS = ("labels", "label", "targets", "target", "y")


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
                self._shift = _shift_of(model, first_examples(batch, 2))
                if self._shift is None:  # two examples without a label that counts
                    self._shift = _shift_of(model, batch)
            logits = logits_of(run_without_answers(model, batch, key))
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


def _shift_of(model: nn.Module, batch: Mapping[str, Any]) -> int | None:
    """By how many positions the model moves the labels in its own loss; None where this batch does not tell."""
    if not takes_labels(model):
        return 0
    with with_graph(model):
        return _shift_in(model, batch)


def _shift_in(model: nn.Module, batch: Mapping[str, Any]) -> int | None:
    try:
        outputs = run_with_answers(model, batch)
    except (TypeError, IndexError):
        return 0  # a wrapper that hands labels on to a model without; labels that are no classes
    labels, logits, own = batch["labels"], field(outputs, "logits"), field(outputs, "loss")
    if logits is None or own is None or logits.ndim != 3 or labels.ndim != 2 or labels.is_floating_point():
        return 0
    if not bool(torch.isfinite(own.detach())):
        return None
    found = read(model, batch, outputs, own)
    if found is None or found.name not in ("next token", "classes"):
        refuse(
            "the labels of a language model must be read as the model itself reads them",
            f"a model whose loss of {float(own.detach()):.6g} is the cross-entropy of its logits neither with the labels of "
            "the same position nor with those of the next",
            "Pass forward=lambda model, batch: (logits, labels), shifted as you train.",
        )
    return int(found.name == "next token")
