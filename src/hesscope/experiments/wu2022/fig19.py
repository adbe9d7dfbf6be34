"""Figures 19 and 20: both factors along training, and the error of the conjecture with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..._version import __version__
from ...curvature.content import content_of
from ...kron import Decoupling, decouple_layers
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, at_most, more
from ..long_runs import Kept, progress
from ..recipe import Findings, experiment
from ._drawing import legends_beside
from ._fits import as_data, fit_of, where_trained, with_fits
from ._trained import CIFAR, START, Setting, TrainedModels, trained_along

SOURCE = "Wu et al., Figures 19 and 20, Section F.4"
CLAIMS = tuple(
    one
    for layer in ("fc1", "fc2", "fc3")
    for one in (
        more(f"{layer}-rank-one", "Wu et al., Figure 19", f"{layer}: E[x xᵀ] is approximately of rank one all along training (smallest share "
             "of the first eigenvalue in the trace)", 0.5, "“always approximately rank 1”: the first is more than all others together", basis="convention"),
        more(f"{layer}-c-large", "Wu et al., Figure 20", f"{layer}: E[M] has around c large eigenvalues all along training (smallest share of "
             "the first c in the trace)", 0.5, "“always have around c large eigenvalues”: they are more than all others together", basis="convention"),
        at_most(f"{layer}-initial", "Wu et al., Section 7", f"{layer}: the decoupling is most accurate at initialisation, where it is proved "
                "(relative spectral error there over the smallest)", 1.0, "“our theory only applies to the initialization”"),
        more(f"{layer}-overlap", SOURCE, f"{layer}: the top c - 1 eigenspaces of the exact and the decoupled Hessian keep agreeing (smallest "
             "overlap)", 0.5, "“works reasonably well on the top eigenspace”: for most of it", basis="convention"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    layers: tuple[str, ...] = ("fc1", "fc2", "fc3")
    hidden: tuple[str, ...] = ("fc2", "fc3")  # layers behind a ReLU, whose inputs have a mean
    looks: int = 6
    k: int = 15


def run(config: Config) -> Findings:
    """Eigenvalues of E[x xᵀ] and E[M], spectral and Frobenius error and overlap, per layer at several epochs."""
    epochs = np.unique(np.linspace(0, config.epochs, config.looks).round().astype(int))
    along = trained_along(config, epochs.tolist())
    looks = []
    for epoch, models in zip(epochs, along, strict=True):
        progress(f"looking at epoch {epoch}")
        looks.append(_look(models, config))
    found: dict[str, Any] = {
        name: {key: np.array([look[name][key].numpy() for look in looks]) for key in looks[0][name]}
        for name in config.layers
    }
    measured: dict[str, Measured] = {}
    for name in config.layers:
        part = found[name]
        if name in config.hidden:
            measured[f"{name}-rank-one"] = float(part["first"].min())
        measured |= {
            f"{name}-c-large": float(part["share"].min()),
            f"{name}-initial": float(part["spectral"][0] / part["spectral"].min()),
            f"{name}-overlap": float(part["overlap"].min()),
        }
    fits = [fit_of(models) for models in along]
    found |= {"epochs": epochs, "loss": np.array([float(fit.loss[0]) for fit in fits])}
    return found | as_data({config.network: fits[-1]}), where_trained(measured, fits[-1])


def _look(models: TrainedModels, config: Config) -> dict[str, dict[str, torch.Tensor]]:
    """What is measured of every layer; kept, so that a killed run goes on with the next look."""
    problem = models.problem()
    kept = Kept(repr(("look", content_of(problem), config.layers, config.k, __version__)))
    state = kept.load()
    if state is None:
        state = {
            name: {
                key: torch.as_tensor(value) for key, value in _measure(d, models.examples.classes - 1, config.k).items()
            }
            for name, d in decouple_layers(problem, config.layers).items()
        }
        kept.save(state)
    return state


def _measure(d: Decoupling, space: int, k: int) -> dict[str, Any]:
    found = d.compare(space)
    tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)
    gamma = torch.linalg.eigvalsh(d.input_autocorrelation).flip(0)
    return {
        "inputs": gamma[:k],
        "first": float(gamma[0] / gamma.sum()),
        "outputs": tau[:k],
        "share": float(tau[: space + 1].sum() / tau.sum()),
        "spectral": found.spectral_error,
        "frobenius": found.frobenius_error,
        "overlap": float(found.overlap[-1]),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """Top eigenvalues of a hidden layer over epochs, and the errors of every layer."""
    layers, epochs = outcome.config["layers"], outcome.data["epochs"]
    shown = outcome.config["hidden"][0]
    found = outcome.data[shown]
    inputs = {f"$\\lambda_{{{i + 1}}}$": found["inputs"][:, i] for i in range(4)}
    places = (0, 4, 8, 9, 14)
    outputs = {f"$\\tau_{{{i + 1}}}$": found["outputs"][:, i] for i in places if i < found["outputs"].shape[1]}
    kinds = {"spectral": "relative spectral error", "frobenius": "relative Frobenius error", "overlap": "overlap"}
    panels = {title: {name: outcome.data[name][kind] for name in layers} for kind, title in kinds.items()}
    drawn = {
        "eigenvalues": legends_beside(
            plots.curves(
                {f"{shown}: E[xxᵀ]": inputs, f"{shown}: E[M]": outputs}, "epoch", "eigenvalue", log=True, x=epochs
            )
        ),
        "errors": plots.curves(panels, "epoch", "", x=epochs),
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Both factors and the error of the conjecture along training",
    "Wu et al., Figures 19 and 20",
    quick=Config(width=40, examples=600, epochs=40, looks=3),
    default=Config(**CIFAR, network="lenet5", hidden=("fc1", "fc2", "fc3"), looks=4),
    paper=Config(data="cifar10", network="lenet5", hidden=("fc1", "fc2", "fc3"), epochs=1000, rate=0.01, looks=11),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand; eleven looks. {START}",
)
