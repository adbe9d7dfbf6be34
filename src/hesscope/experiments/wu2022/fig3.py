"""Figure 3: spectra of the output Hessian and of the layer's Hessian, with true and with random labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ...kron import decouple
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import less, more
from ..recipe import Findings, experiment
from ._fits import as_data, fit_of, results, where_trained, with_fits
from ._spectra import closeness, widest_gap
from ._trained import START, Setting, trained, untrained

SOURCE = "Wu et al., Figure 3, Section 5.2"
CASES = ("initialisation", "true labels", "random labels")
CLAIMS = (
    *(
        more(f"{case}-{matrix}", SOURCE, f"{matrix} at {case}: there is an eigengap at c - 1 (quotient there over the largest other one "
             "among the first 2(c - 1), but the first)", 1, "“for (a) and (b) we are also seeing the eigengap at c - 1”")
        for case in CASES[:2]
        for matrix in ("output", "layer")
    ),
    *(
        less(f"random labels-{matrix}", SOURCE, f"{matrix} with random labels: there is none (the same quotient)", 1,
             "“the eigengap does not appear at minimum for random labeled data with a under-parameterized network”")
        for matrix in ("output", "layer")
    ),
    *(
        less(f"{case}-similar", SOURCE, f"{case}: the two spectra are similar (mean |log quotient| of the top c - 1 of the layer's and "
             "λ₁(E[xxᵀ]) τ_i, over the range on that scale)", 0.1, "the two curves lie on each other: a tenth of their height apart at most", basis="convention")
        for case in CASES
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    layer: str = "fc2"
    k: int = 20
    random_epochs: int = 100


def run(config: Config) -> Findings:
    """At initialisation, at a minimum of true labels, and at one of random labels."""
    cases = {
        "initialisation": untrained(config),
        "true labels": trained(config),
        "random labels": trained(replace(config, random_labels=True, epochs=config.random_epochs)),
    }
    fits = {name: fit_of(cases[name]) for name in CASES[1:]}
    data: dict[str, Any] = {}
    for name, models in cases.items():
        d = decouple(models.problem(), config.layer)
        tau = torch.linalg.eigvalsh(d.output_hessian).flip(0)[: config.k].numpy()
        gamma = float(torch.linalg.eigvalsh(d.input_autocorrelation)[-1])
        data[name] = {"output": tau * gamma, "layer": eigenpairs(d.exact, k=config.k).values}
    space = cases["true labels"].examples.classes - 1
    measured: dict[str, Any] = {}
    for name, found in data.items():
        for matrix in ("output", "layer"):
            measured[f"{name}-{matrix}"] = widest_gap(found[matrix], space)
        measured[f"{name}-similar"] = closeness(found["output"], found["layer"], space)
    # With random labels the paper has a network that cannot fit them: its loss stays high, and is no sign of a short training.
    only_true = {name: value for name, value in measured.items() if name.startswith("true labels")}
    return data | as_data(fits), measured | where_trained(only_true, fits["true labels"])


def figures(outcome: Outcome) -> dict[str, Any]:
    """Both spectra in each case."""
    panels = {
        name: {r"$\lambda_1(E[xx^T])\,\tau_i$": found["output"], "layer's Hessian": found["layer"]}
        for name, found in results(outcome).items()
    }
    return with_fits({"spectra": plots.curves(panels, "index", "eigenvalue", log=True)}, outcome)


EXPERIMENT = experiment(
    __name__,
    "Spectra of output Hessians and layer Hessians",
    "Wu et al., Figure 3",
    quick=Config(width=64, epochs=30, examples=600, random_epochs=80),
    default=Config(
        data="mnist", examples=10000, width=200, epochs=20, rate=0.05, k=40, random_epochs=60, measured_on=4000
    ),
    paper=Config(data="mnist", width=200, epochs=1000, rate=0.01, k=40, random_epochs=1000),
    chosen=f"fc2 of F-200²; the paper does not name the layer. {START}",
)
