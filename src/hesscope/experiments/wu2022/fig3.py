"""Figure 3: spectra of the output Hessian and of the layer's Hessian, with true and with random labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from ...kron import decouple
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, trained, untrained

SOURCE = "Wu et al., Figure 3, Section 5.2"


@dataclass(frozen=True)
class Config(Setting):
    layer: str = "fc2"
    k: int = 20
    random_epochs: int = 100


def run(config: Config) -> Outcome:
    """At initialisation, at a minimum of true labels, and at one of random labels."""
    cases = {
        "initialisation": untrained(config),
        "true labels": trained(config),
        "random labels": trained(replace(config, random_labels=True, epochs=config.random_epochs)),
    }
    data: dict[str, Any] = {}
    for name, models in cases.items():
        d = decouple(models.problem(), config.layer)
        tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)[: config.k].numpy()
        gamma = float(torch.linalg.eigvalsh(d.input_autocorrelation)[-1])
        data[name] = {"output": tau * gamma, "layer": eigenpairs(d.exact, k=config.k).values}
    space = cases["true labels"].examples.classes - 1
    gaps = {name: _gap(found["output"], space) for name, found in data.items()}
    similar = _similarity(data["true labels"], space)
    claims = (
        Claim(
            "The output Hessian has c - 1 large eigenvalues, at initialisation and with true labels.",
            SOURCE,
            "τ_(c-1)/τ_c >= 2 for both",
            f"{gaps['initialisation']:.1f}, {gaps['true labels']:.1f}",
            gaps["initialisation"] >= 2 and gaps["true labels"] >= 2,
        ),
        Claim(
            "With random labels the gap at c - 1 is smaller.",
            SOURCE,
            "below the gap with true labels",
            f"{gaps['random labels']:.2f} < {gaps['true labels']:.2f}",
            gaps["random labels"] < gaps["true labels"],
        ),
        Claim(
            "The top of the layer's spectrum is that of the output Hessian times λ₁ of E[x xᵀ].",
            SOURCE,
            "mean |log quotient| of the top c - 1 below log 2",
            f"{similar:.3f}",
            similar < np.log(2),
        ),
    )
    return Outcome("wu2022.fig3", asdict(config), data, claims)


def _gap(values: Any, space: int) -> float:
    return float(values[space - 1] / max(values[space], 1e-300))


def _similarity(found: dict[str, Any], space: int) -> float:
    return float(np.abs(np.log(found["output"][:space] / found["layer"][:space])).mean())


def figures(outcome: Outcome) -> dict[str, Any]:
    """Both spectra in each case."""
    panels = {
        name: {r"$\lambda_1(E[xx^T])\,\tau_i$": found["output"], "layer's Hessian": found["layer"]}
        for name, found in outcome.data.items()
    }
    return {"spectra": plots.curves(panels, "index", "eigenvalue", log=True)}


EXPERIMENT = Experiment(
    name="wu2022.fig3",
    title="Spectra of output Hessians and layer Hessians",
    source="Wu et al., Figure 3",
    quick=Config(width=64, epochs=30, examples=600, random_epochs=80),
    paper=Config(data="mnist", examples=10000, width=200, epochs=20, rate=0.05, k=40, random_epochs=60),
    run=run,
    figures=figures,
)
