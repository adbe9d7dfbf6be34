"""Theorems 4.1 and 4.2 in simulation: random two-layer networks of growing width on rectified Gaussian inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...curvature import Problem
from ...kron import decouple, predicted_output_eigenspace, subspace_overlap
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ...rng import Rng

SOURCE = "Wu et al., Theorems 4.1 and 4.2"


@dataclass(frozen=True)
class Config:
    widths: tuple[int, ...] = (20, 60, 200)
    exponent: float = 1.1  # d = n^exponent
    classes: int = 4
    examples: int = 4000
    draws: int = 3
    seed: int = 0


def run(config: Config) -> Outcome:
    """Overlaps and gaps at every width, averaged over networks."""
    rows = [[_measure(config, n, draw) for draw in range(config.draws)] for n in config.widths]
    names = list(rows[0][0])
    data: dict[str, Any] = {name: np.array([[r[name] for r in row] for row in rows]) for name in names}
    return Outcome("wu2022.theorem4", asdict(config), data | {"widths": np.array(config.widths)}, _claims(data))


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


def _claims(data: dict[str, Any]) -> tuple[Claim, ...]:
    mean = {name: values.mean(1) for name, values in data.items()}

    def shown(name: str) -> str:
        return ", ".join(f"{value:.3f}" for value in mean[name])

    return (
        Claim(
            "Theorem 4.1: the top c - 1 eigenspaces of H and of E[M] ⊗ E[x xᵀ] approach each other as n grows.",
            SOURCE,
            "overlap increases and ends above 0.97",
            shown("layer overlap"),
            bool(mean["layer overlap"][-1] > max(0.97, mean["layer overlap"][0])),
        ),
        Claim(
            "Theorem 4.1: λ_c/λ_(c-1) of H decreases with n.",
            SOURCE,
            "smaller at the largest n than at the smallest",
            shown("layer gap"),
            bool(mean["layer gap"][-1] < mean["layer gap"][0]),
        ),
        Claim(
            "Theorem 4.2: λ_c/λ_(c-1) of E[M] decreases with n.",
            SOURCE,
            "smaller at the largest n than at the smallest",
            shown("output gap"),
            bool(mean["output gap"][-1] < mean["output gap"][0]),
        ),
        Claim(
            "Theorem 4.2, corrected: the top eigenspace of E[M] approaches the rows of (I - 11ᵀ/c) W Π.",
            SOURCE + ", corrected",
            "overlap increases and ends above 0.97",
            shown("corrected overlap"),
            bool(mean["corrected overlap"][-1] > max(0.97, mean["corrected overlap"][0])),
        ),
        Claim(
            "Theorem 4.2 as printed (every unit on half of the time) does not hold for rectified inputs: the overlap "
            "with the rows of W stays below 0.95.",
            SOURCE + ", as printed",
            "below 0.95 at the largest n, and below the corrected one",
            shown("printed overlap"),
            bool(mean["printed overlap"][-1] < min(0.95, mean["corrected overlap"][-1])),
        ),
        Claim(
            "(8) corrected, Π W^T E[A] W Π + diag(π(1-π)(W^T E[A] W)_ii) with π = Φ(S/(√(π-1)|W|)), is close to E[M].",
            "Wu et al., (8), corrected",
            "relative error at the largest n below 0.2 and half of the printed one's",
            f"corrected {shown('corrected error')}; printed {shown('printed error')}",
            bool(mean["corrected error"][-1] < min(0.2, 0.5 * mean["printed error"][-1])),
        ),
    )


def figures(outcome: Outcome) -> dict[str, Any]:
    """Overlaps and gaps over the width."""
    mean = {name: np.asarray(outcome.data[name]).mean(1) for name in outcome.data if name != "widths"}
    overlaps = {name: mean[name] for name in ("layer overlap", "corrected overlap", "printed overlap")}
    gaps = {name: mean[name] for name in ("layer gap", "output gap", "corrected error", "printed error")}
    panels = {"overlap of top c - 1 spaces": overlaps, "λ_c/λ_(c-1), and errors of (8)": gaps}
    return {"theorems": plots.curves(panels, "width n", "", x=outcome.data["widths"])}


EXPERIMENT = Experiment(
    name="wu2022.theorem4",
    title="Random two-layer networks of growing width",
    source="Wu et al., Theorems 4.1 and 4.2",
    quick=Config(widths=(15, 50, 150), examples=3000, draws=2),
    paper=Config(widths=(20, 50, 100, 200, 400), examples=8000, draws=3),
    run=run,
    figures=figures,
)
