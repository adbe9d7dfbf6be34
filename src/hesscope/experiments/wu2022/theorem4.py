"""Theorems 4.1 and 4.2 in simulation: random two-layer networks of growing width on rectified Gaussian inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import nn

from ...curvature import Problem
from ...kron import decouple, predicted_output_eigenspace, subspace_overlap
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...plots.style import THEORY
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import less, standard_errors
from ..recipe import Findings, experiment

SOURCE = "Wu et al., Theorems 4.1 and 4.2"
# With π_i = Φ(g/√(π-1)), g standard normal, rows of W and of W Π have cos² = E[π]²/E[π²] as n grows, and
# E[Φ(g/√(π-1))²] = 1/4 + arcsin(1/π)/(2π) is the chance that two normals with correlation 1/π are both negative.
PRINTED_LIMIT = float(1 / (1 + 2 / np.pi * np.arcsin(1 / np.pi)))  # 0.8290
CLAIMS = (
    less("overlap", "Wu et al., Theorem 4.1", "The top c - 1 eigenspaces of H and of E[M] ⊗ E[x xᵀ] approach each other (1 - overlap, largest "
         "n over smallest)", 1, "“overlap > 1 - ε” as n grows"),
    less("layer-gap", "Wu et al., (6)", "λ_c/λ_(c-1) of H falls with n (largest over smallest n)", 1, "“< ε” as n grows"),
    less("output-gap", "Wu et al., (7)", "λ_c/λ_(c-1) of E[M] falls with n (largest over smallest n)", 1, "“< ε” as n grows"),
    less("printed", "Wu et al., Theorem 4.2", "As printed, with the rows of W: the top eigenspace of E[M] approaches them (1 - overlap, "
         "largest n over smallest)", 0.5, "“overlap > 1 - ε” as n grows: at least halved over this range", basis="convention"),
    standard_errors("printed-limit", "Wu et al., Theorem 4.2", "It does not: the overlap tends to 1/(1 + (2/π) arcsin(1/π)) = 0.829 "
                    "(extrapolated in 1/n)", corrected=True),
    less("corrected", "Wu et al., Theorem 4.2", "With activation probabilities, the rows of (I - 11ᵀ/c) W Π, it does (1 - overlap, largest n "
         "over smallest)", 0.5, "“overlap > 1 - ε” as n grows: at least halved over this range", corrected=True, basis="convention"),
    less("matrix", "Wu et al., (8)", "(8) with π = Φ(S/(√(π-1)|W|)) in place of 1/2 is nearer to E[M] (relative error over that of the printed "
         "one, largest n)", 1, "the corrected form must be the nearer one", corrected=True),
    less("matrix-limit", "Wu et al., (8)", "... and approaches it (relative error, largest over smallest n)", 1, "a limit: the error falls",
         corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    widths: tuple[int, ...] = (20, 60, 200)
    exponent: float = 1.1  # d = n^exponent
    classes: int = 4
    examples: int = 4000
    draws: int = 3
    seed: int = 0


def run(config: Config) -> Findings:
    """Overlaps and gaps at every width, averaged over networks."""
    rows = [[_measure(config, n, draw) for draw in range(config.draws)] for n in config.widths]
    names = list(rows[0][0])
    data: dict[str, Any] = {name: np.array([[r[name] for r in row] for row in rows]) for name in names}
    return data | {"widths": np.array(config.widths)}, _measured(config, data)


def _measure(config: Config, n: int, draw: int) -> dict[str, float]:
    rng = Rng(config.seed).child("theorem4", n, draw)
    d, c = round(n**config.exponent), config.classes
    problem = _problem(rng, n, d, c, config.examples)
    found = decouple(problem, "0")
    space = c - 1
    tau, top = torch.linalg.eigh(found.output_hessian)
    true = eigenpairs(found.exact, k=c)
    predicted = predicted_output_eigenspace(problem, "0")
    w = problem.parameters["2.weight"].double()
    weight = problem.parameters["0.weight"].double()
    law = torch.special.ndtr(weight.sum(1) / ((torch.pi - 1) ** 0.5 * torch.linalg.vector_norm(weight, dim=1)))
    inner = w.T @ _mean_softmax_hessian(problem) @ w
    corrected = law[:, None] * inner * law + torch.diag(law * (1 - law) * inner.diagonal())
    printed = (inner + torch.diag(inner.diagonal())) / 4
    size = torch.linalg.matrix_norm(found.output_hessian)
    return {
        "layer overlap": subspace_overlap(true.vectors[:, :space], found.eigenpairs(space)[1]),
        "layer gap": float(true.values[space] / true.values[space - 1]),
        "output gap": float(tau[-c] / tau[-space]),
        "corrected overlap": subspace_overlap(predicted.corrected, top[:, -space:]),
        "printed overlap": subspace_overlap(predicted.printed, top[:, -space:]),
        "corrected error": float(torch.linalg.matrix_norm(corrected - found.output_hessian) / size),
        "printed error": float(torch.linalg.matrix_norm(printed - found.output_hessian) / size),
    }


def _problem(rng: Rng, n: int, d: int, c: int, examples: int) -> Problem:
    draw = rng.torch()
    model = nn.Sequential(nn.Linear(d, n, bias=False), nn.ReLU(), nn.Linear(n, c, bias=False))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            weight = layer.weight
            assert isinstance(weight, torch.Tensor)
            weight.copy_(torch.randn(weight.shape, generator=draw) / weight.shape[1] ** 0.5)
    x = torch.randn(examples, d, generator=draw).clamp_min(0)
    return Problem.of(model, "cross_entropy", (x, torch.zeros(examples, dtype=torch.long)))


def _mean_softmax_hessian(problem: Problem) -> torch.Tensor:
    """E[A]: the output Hessian of the last layer."""
    return decouple(problem, "2").output_hessian


def _measured(config: Config, data: dict[str, Any]) -> dict[str, Any]:
    mean = {name: values.mean(1) for name, values in data.items()}

    def away(name: str) -> float:
        return float((1 - mean[name][-1]) / (1 - mean[name][0]))

    def falls(name: str) -> float:
        return float(mean[name][-1] / mean[name][0])

    return {
        "overlap": away("layer overlap"),
        "layer-gap": falls("layer gap"),
        "output-gap": falls("output gap"),
        "printed": away("printed overlap"),
        "printed-limit": _limit_score(config, data["printed overlap"]),
        "corrected": away("corrected overlap"),
        "matrix": float(mean["corrected error"][-1] / mean["printed error"][-1]),
        "matrix-limit": falls("corrected error"),
    }


def _limit_score(config: Config, overlaps: Any) -> tuple[float, str]:
    """Standard errors between the overlap at n -> ∞, from the two largest widths with an error of order 1/n, and its limit."""
    small, large = config.widths[-2:]
    weight = large / (large - small)
    mean = weight * overlaps[-1].mean() - (weight - 1) * overlaps[-2].mean()
    variance = weight**2 * overlaps[-1].var(ddof=1) + (weight - 1) ** 2 * overlaps[-2].var(ddof=1)
    error = float(np.sqrt(variance / config.draws))
    quotient = abs(mean - PRINTED_LIMIT) / error
    score = stats.norm.isf(max(stats.t.sf(quotient, config.draws - 1), 1e-300))
    return float(score), f"{mean:.3f} ± {error:.3f} against {PRINTED_LIMIT:.3f}"


def figures(outcome: Outcome) -> dict[str, Any]:
    """Overlaps and gaps over the width."""
    mean = {name: np.asarray(outcome.data[name]).mean(1) for name in outcome.data if name != "widths"}
    overlaps = {name: mean[name] for name in ("layer overlap", "corrected overlap", "printed overlap")}
    gaps = {name: mean[name] for name in ("layer gap", "output gap", "corrected error", "printed error")}
    panels = {"overlap of top c - 1 spaces": overlaps, r"$\lambda_c/\lambda_{c-1}$, and errors of (8)": gaps}
    figure = plots.curves(panels, "width n", "", x=outcome.data["widths"])
    figure.axes[0].axhline(PRINTED_LIMIT, color=THEORY, ls=":", lw=1, label="limit of the printed one, 0.829")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return {"theorems": figure}


EXPERIMENT = experiment(
    __name__,
    "Random two-layer networks of growing width",
    "Wu et al., Theorems 4.1 and 4.2",
    quick=Config(widths=(15, 50, 150), examples=3000, draws=3),
    default=Config(widths=(20, 50, 100, 200, 400), examples=8000, draws=6),
    paper=Config(widths=(20, 50, 100, 200, 400), examples=8000, draws=20),
    chosen="everything: the theorem has no experiment of its own.",
)
