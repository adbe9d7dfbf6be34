"""Figure 2: eigenvalues and top eigenspaces of layer-wise Hessians beside E[M] ⊗ E[x xᵀ], with the errors as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kron import decouple_layers
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import less, more
from ..recipe import Findings, experiment
from ._drawing import with_errors
from ._fits import as_data, fit_of, where_trained, with_fits
from ._spectra import closeness, widest_gap
from ._trained import MNIST, START, Setting, trained, untrained

SOURCE = "Wu et al., Figure 2, Section 5.1"
CLAIMS = tuple(
    one
    for layer in ("fc1", "fc2", "fc3")
    for one in (
        more(f"{layer}-initial", "Wu et al., Theorem 4.1", f"{layer}, initialisation: the top c - 1 eigenspaces of the exact and the "
             "decoupled Hessian agree (overlap)", 0.5, "“overlap > 1 - ε”: most of it at finite width", basis="convention"),
        more(f"{layer}-overlap", SOURCE, f"{layer}, trained: the top c - 1 eigenspaces agree (overlap)", 0.5,
             "“works reasonably well on the top eigenspace”: for most of it", basis="convention"),
        less(f"{layer}-values", SOURCE, f"{layer}, trained: the top c - 1 eigenvalues agree (mean |log quotient| over the range of the "
             "exact ones on that scale)", 0.1, "the two curves of the figure lie on each other: a tenth of their height apart at most", basis="convention"),
        more(f"{layer}-outliers", f"{SOURCE} and 5.2", f"{layer}, trained: c - 1 eigenvalues stand out (quotient λ_(c-1)/λ_c over the "
             "largest other one among the first 2(c - 1), but the first)", 1, "“the eigengap at c - 1”"),
        less(f"{layer}-error", "Wu et al., (3)", f"{layer}, trained: the error of the decoupling is small (relative spectral norm)", 0.5,
             "“ε a small constant”: less than half", basis="convention"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    k: int = 50
    layers: tuple[str, ...] = ("fc1", "fc2", "fc3")


def run(config: Config) -> Findings:
    """The k largest eigenpairs of every layer's Hessian, exactly, and those of the Kronecker product."""
    models = trained(config)
    decoupled = decouple_layers(models.problem(), config.layers)
    space = models.examples.classes - 1
    initial = _at_initialisation(config, space)
    fit = fit_of(models)
    data: dict[str, Any] = {"initialisation": initial, **as_data({config.network: fit})}
    at_start = {f"{name}-initial": float(found["overlap"][-1]) for name, found in initial.items()}
    measured: dict[str, Any] = {}
    for name, d in decoupled.items():
        found, errors = d.compare(min(config.k, d.exact.shape[0])), d.errors()
        data[name] = {
            "exact": found.eigenvalues,
            "decoupled": found.approximate_eigenvalues,
            "overlap": found.overlap,
            "spectral_error": found.spectral_error,
            "frobenius_error": found.frobenius_error,
            "frobenius_stderr": found.frobenius_stderr,
            "nearest_frobenius_error": float(errors.frobenius[-1]),
            "nearest_frobenius_stderr": float(errors.frobenius_stderr[-1]),
            "nearest_spectral_error": float(errors.spectral[-1]),
        }
        measured |= {
            f"{name}-overlap": float(found.overlap[space - 1]),
            f"{name}-values": closeness(found.approximate_eigenvalues, found.eigenvalues, space),
            f"{name}-outliers": widest_gap(found.eigenvalues, space),
            f"{name}-error": float(found.spectral_error),
        }
    return data, at_start | where_trained(measured, fit)


def _at_initialisation(config: Config, space: int) -> dict[str, Any]:
    found = {name: d.compare(space) for name, d in decouple_layers(untrained(config).problem(), config.layers).items()}
    return {
        name: {"overlap": each.overlap, "spectral_error": each.spectral_error, "frobenius_error": each.frobenius_error}
        for name, each in found.items()
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """Eigenvalues above, overlap below, one column per layer."""
    layers = outcome.config["layers"]
    panels = {n: (outcome.data[n]["exact"], outcome.data[n]["decoupled"], outcome.data[n]["overlap"]) for n in layers}
    errors = {
        "decoupled": np.array([outcome.data[n]["frobenius_error"] for n in layers]),
        "nearest": np.array([outcome.data[n]["nearest_frobenius_error"] for n in layers]),
    }
    halves = [
        np.array([outcome.data[n].get(f"{kind}frobenius_stderr", np.nan) for n in layers]) for kind in ("", "nearest_")
    ]
    bars = plots.bars(list(layers), errors, "relative Frobenius error")
    drawn = {
        "layers": plots.spectrum_and_overlap(panels),
        "errors": with_errors(bars, halves, "± its standard error"),
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Exact and decoupled layer-wise Hessians of F-200²",
    "Wu et al., Figure 2",
    quick=Config(width=40, epochs=40, k=20),
    default=Config(**MNIST, width=200),
    paper=Config(data="mnist", width=200, epochs=1000, rate=0.01),
    chosen=f"F-200² on MNIST, 1000 epochs of SGD at 0.01 in batches of 128. {START}",
)
