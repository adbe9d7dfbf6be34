"""Figure 4: the sharpness of two-layer linear networks correlates most with squared spectral norms (SP, muP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...results.claims import Outcome
from ..declared import less, more
from ..recipe import Findings, experiment
from . import PAPER
from ._ensemble import CHOSEN
from ._two_layer import NORMS, Measured, Study, draw_norm_correlations, measure, norm_correlations

PARAMETRIZATIONS = ("SP", "muP")

CLAIMS = (
    *(
        more(f"lead-{name}", f"{PAPER}, Figure 4", f"{name}, end of training: of all squared norms of one weight matrix the "
             "spectral one correlates most with the sharpness, at every size above 1 (smallest lead of r)", 0,
             "“it is the spectral norm of the weight matrix that correlates the most”")
        for name in PARAMETRIZATIONS
    ),
    more("second-SP", f"{PAPER}, D.3.3", "SP, end of training: it is the second matrix that drives the correlation (r of W2 "
         "minus r of W1, mean over sizes above 1)", 0, "“for the SP it is the second weight matrix”"),
    more("second-muP", f"{PAPER}, D.3.3", "muP, end of training: the second matrix drives the correlation (r of W2 minus r of "
         "W1, mean over sizes above 1)", 0, "“for muP it is the second one”"),
    less("sum", f"{PAPER}, D.3.3", "A fitted linear network has sharpness exactly λ_max(Σ^½ (|W2|² I + W1ᵀ W1) Σ^½): for white "
         "inputs the SUM of the squared spectral norms (its largest relative error over that of their maximum)", 1,
         "the rule that replaces “max” must be the nearer one", corrected=True),
    more("varies", f"{PAPER}, D.3.3", "Which matrix drives it: the one whose squared spectral norm varies more between networks "
         "(share of parametrizations and sizes)", 0.5, "more often than a coin would have it", corrected=True, basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Width of the hidden layer, input and output sizes, networks for each point, samples, descent steps."""

    width: int = 30
    ends: tuple[int, ...] = (1, 3, 8)
    networks: int = 60
    samples: int = 1024
    steps: int = 200
    seed: int = 0


def studies(config: Config, parametrizations: tuple[str, ...]) -> dict[str, Measured]:
    """The networks of each parametrization, initial and trained."""
    c = config
    return {p: measure(Study(p, c.width, c.ends, c.networks, c.samples, c.steps, c.seed)) for p in parametrizations}


def best_over_layers(table: Any) -> Any:
    """The larger |r| of the two layers: (norm, moment, size)."""
    return np.abs(table).max(axis=-1)


def run(config: Config) -> Findings:
    """Train, then correlate."""
    found = studies(config, PARAMETRIZATIONS)
    tables = {name: norm_correlations(m, m.sharpness) for name, m in found.items()}
    wide = [i for i, ends in enumerate(config.ends) if ends > 1]
    lead = {
        name: min(float(best_over_layers(t)[0, 1, i] - best_over_layers(t)[1:, 1, i].max()) for i in wide)
        for name, t in tables.items()
    }
    second = {name: float(np.mean([t[0, 1, i, 1] - t[0, 1, i, 0] for i in wide])) for name, t in tables.items()}
    rule = max(float(np.abs(m.fitted_rule / m.sharpness[1] - 1).max()) for m in found.values())
    largest = max(
        float(np.abs(m.norms["spectral"][1].max(axis=1) * _scale(name, config)[:, None] / m.sharpness[1] - 1).max())
        for name, m in found.items()
    )
    larger = [
        np.argmax(np.abs(table[0, 1, i])) == np.argmax(found[name].norms["spectral"][1, i].std(axis=-1))
        for name, table in tables.items()
        for i in range(len(config.ends))
    ]
    return {"correlation": tables, "progress": {name: m.progress for name, m in found.items()}}, {
        **{f"lead-{name}": value for name, value in lead.items()},
        **{f"second-{name}": value for name, value in second.items()},
        "sum": rule / largest,
        "varies": float(np.mean(larger)),
    }


def _scale(parametrization: str, config: Config) -> Any:
    """What the layers' outputs are multiplied by, squared, for every size: 1 but under NTP."""
    return np.array([1.0 / (ends * config.width) if parametrization == "NTP" else 1.0 for ends in config.ends])


def figures(result: Outcome) -> dict[str, Any]:
    """Correlation against input size, by norm and layer."""
    tables = result.data["correlation"]
    return {"fig4": draw_norm_correlations(tables, result.config["ends"], "sharpness")}


EXPERIMENT = experiment(
    __name__,
    f"Sharpness against squared {', '.join(NORMS)} norms",
    "Cracking the Hessian, Figure 4",
    quick=Config(),
    default=Config(ends=(1, 2, 4, 8, 16, 30), networks=100, steps=400),
    paper=Config(width=100, ends=(1, 2, 5, 10, 20, 50, 100), networks=200, steps=4000),
    chosen=f"{CHOSEN.removesuffix('.')}; seven of the sizes 1 to 100.",
)
