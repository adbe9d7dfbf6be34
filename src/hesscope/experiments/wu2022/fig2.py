"""Figure 2: eigenvalues and top eigenspaces of layer-wise Hessians beside E[M] ⊗ E[x xᵀ], with the errors as numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...kron import decouple_layers
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, trained, untrained

SOURCE = "Wu et al., Figure 2, Section 5.1"


@dataclass(frozen=True)
class Config(Setting):
    k: int = 50
    layers: tuple[str, ...] = ("fc1", "fc2", "fc3")
    outlier_layers: tuple[str, ...] = ("fc2", "fc3")
    initial_overlap: float = 0.9  # small networks fluctuate more


def run(config: Config) -> Outcome:
    """The k largest eigenpairs of every layer's Hessian, exactly, and those of the Kronecker product."""
    models = trained(config)
    decoupled = decouple_layers(models.problem(), config.layers)
    space = models.examples.classes - 1
    initial, claim = _at_initialisation(config, space)
    data: dict[str, Any] = {
        "accuracy": models.accuracy,
        "synthetic": models.examples.synthetic,
        "initialisation": initial,
    }
    claims = [claim]
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
            "nearest_spectral_error": float(errors.spectral[-1]),
        }
        claims += _claims(name, data[name], space, d.exact.shape[0], config.outlier_layers)
    return Outcome("wu2022.fig2", asdict(config), data, tuple(claims))


def _at_initialisation(config: Config, space: int) -> tuple[dict[str, Any], Claim]:
    found = {name: d.compare(space) for name, d in decouple_layers(untrained(config).problem(), config.layers).items()}
    data = {
        name: {"overlap": each.overlap, "spectral_error": each.spectral_error, "frobenius_error": each.frobenius_error}
        for name, each in found.items()
    }
    claim = Claim(
        "At initialisation the top c - 1 eigenspaces of the exact and the decoupled Hessians nearly coincide.",
        SOURCE,
        f"overlap >= {config.initial_overlap} in every layer",
        ", ".join(
            f"{name}: {each.overlap[-1]:.3f} (errors: spectral {each.spectral_error:.2f}, Frobenius "
            f"{each.frobenius_error:.2f})"
            for name, each in found.items()
        ),
        min(float(each.overlap[-1]) for each in found.values()) >= config.initial_overlap,
    )
    return data, claim


def _claims(name: str, found: dict[str, Any], space: int, size: int, outlier_layers: tuple[str, ...]) -> list[Claim]:
    overlap, chance = float(found["overlap"][space - 1]), space / size
    quotients = found["decoupled"][:space] / found["exact"][:space]
    nearest, decoupled = found["nearest_frobenius_error"], found["frobenius_error"]
    gaps = found["exact"][:-1] / found["exact"][1:]
    gap, others = float(gaps[space - 1]), float(np.delete(gaps[: 2 * space], [0, space - 1]).max())
    outliers = [
        Claim(
            f"{name}: c - 1 eigenvalues stand out; the widest relative gap below the first eigenvalue is behind them.",
            SOURCE + " and 5.2",
            "λ_(c-1)/λ_c above every other quotient among the first 2(c - 1), but the first",
            f"{gap:.2f} against {others:.2f}",
            gap > others,
        )
    ]
    return (outliers if name in outlier_layers else []) + [
        Claim(
            f"{name}: the top c - 1 eigenspaces of the exact and the decoupled Hessian overlap far beyond chance.",
            SOURCE,
            f"overlap >= 0.6 (chance: {chance:.4f})",
            f"{overlap:.3f}",
            overlap >= 0.6,
        ),
        Claim(
            f"{name}: the decoupled top c - 1 eigenvalues are those of the Hessian up to a factor of two.",
            SOURCE,
            "quotients in [0.5, 2]",
            f"{quotients.min():.2f} to {quotients.max():.2f}",
            bool(quotients.min() >= 0.5 and quotients.max() <= 2),
        ),
        Claim(
            f"{name}: the error of the conjecture is below one, but not small; the nearest Kronecker product is closer.",
            "Wu et al., (3), made quantitative",
            "nearest <= decoupled < 1 in relative Frobenius norm",
            f"{nearest:.3f} <= {decoupled:.3f} (spectral: {found['spectral_error']:.3f})",
            nearest <= decoupled * (1 + 1e-6) and decoupled < 1,
        ),
    ]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Eigenvalues above, overlap below, one column per layer."""
    layers = outcome.config["layers"]
    panels = {n: (outcome.data[n]["exact"], outcome.data[n]["decoupled"], outcome.data[n]["overlap"]) for n in layers}
    errors = {
        "decoupled": np.array([outcome.data[n]["frobenius_error"] for n in layers]),
        "nearest": np.array([outcome.data[n]["nearest_frobenius_error"] for n in layers]),
    }
    return {
        "layers": plots.spectrum_and_overlap(panels),
        "errors": plots.bars(list(layers), errors, "relative Frobenius error"),
    }


EXPERIMENT = Experiment(
    name="wu2022.fig2",
    title="Exact and decoupled layer-wise Hessians of F-200²",
    source="Wu et al., Figure 2",
    quick=Config(width=40, epochs=40, k=20, outlier_layers=("fc3",), initial_overlap=0.8),
    paper=Config(data="mnist", width=200, epochs=5, rate=0.01),
    run=run,
    figures=figures,
)
