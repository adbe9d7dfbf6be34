"""Whether networks are trained: what the paper says of minima is decided by networks that have come near one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...results.claims import Outcome
from ..declared import Measured
from ._drawing import as_printed, line_below
from ._trained import TrainedModels

ENOUGH = 0.5  # of ln c, the loss of a network that knows nothing: above it no network counts as trained
FITS = "training"  # where the fits stand among an outcome's data
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class TrainingFit:
    """Mean cross-entropy and accuracy of every model, each on all that it was trained on."""

    loss: Floats
    accuracy: Floats
    classes: int

    @property
    def trained(self) -> bool:
        """Whether every model is; a loss that is no number is none."""
        return bool((self.loss <= ENOUGH * np.log(self.classes)).all())

    @property
    def why_not(self) -> str:
        """In place of the number of a claim about trained networks."""
        worst = float(self.loss.max())
        return f"networks are not trained (loss {worst:.3g}, at most {ENOUGH * np.log(self.classes):.3g} if they were)"


def fit_of(models: TrainedModels) -> TrainingFit:
    """Of every one of them."""
    data = models.examples
    return fit_on(models.models, data.x, data.y, data.classes)


def fit_on(models: list[nn.Module], x: Tensor, y: Tensor, classes: int) -> TrainingFit:
    """Losses and accuracies of these models on these examples, with frozen batch-norm statistics."""
    found = np.array([_loss_and_accuracy(model.eval(), x, y) for model in models])
    return TrainingFit(found[:, 0], found[:, 1], classes)


def _loss_and_accuracy(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    loss, hits = 0.0, 0
    with torch.no_grad():
        for inputs, targets in zip(torch.split(x, 1000), torch.split(y, 1000), strict=True):
            outputs = model(inputs)
            loss += float(F.cross_entropy(outputs, targets, reduction="sum"))
            hits += int((outputs.argmax(-1) == targets).sum())
    return loss / len(x), hits / len(x)


def where_trained(
    measured: Mapping[str, Measured], *fits: TrainingFit, but: tuple[str, ...] = ()
) -> dict[str, Measured]:
    """These numbers, or why there are none; `but` names those that say something of any network."""
    poor = [fit.why_not for fit in fits if not fit.trained]
    return {name: value if name in but or not poor else poor[0] for name, value in measured.items()}


def as_data(fits: Mapping[str, TrainingFit]) -> dict[str, Any]:
    """What an outcome keeps of them."""
    return {FITS: {name: {"loss": fit.loss, "accuracy": fit.accuracy} for name, fit in fits.items()}}


def results(outcome: Outcome) -> dict[str, Any]:
    """An outcome's data without the fits."""
    return {name: found for name, found in outcome.data.items() if name != FITS}


def with_fits(figures: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Every figure with a line that says how well its networks are trained."""
    said = [_line(name, found) for name, found in outcome.data.get(FITS, {}).items()]
    if said:
        for figure in figures.values():
            line_below(figure, "On the training data: " + "; ".join(said))
    return figures


def _line(name: str, found: Mapping[str, Any]) -> str:
    return f"{as_printed(name)}: loss {_span(found['loss'], '.2g')}, accuracy {_span(found['accuracy'], '.2f')}"


def _span(values: Any, form: str) -> str:
    low, high = (format(float(value), form) for value in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"
