"""Figures 2(c, d) and 5: top eigenpairs of the full Hessian from output Hessians and mean inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...curvature import Hessian
from ...kron import approximate_full_eigenpairs
from ...kron.subspaces import nested_overlaps
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ._trained import Setting, trained

SOURCE = "Wu et al., Figure 5, Appendix C"


@dataclass(frozen=True)
class Config(Setting):
    k: int = 50
    networks: tuple[tuple[int, int], ...] = ((200, 2), (600, 4))  # (width, depth)


def run(config: Config) -> Outcome:
    """Exact eigenpairs by Lanczos beside the principled and the printed approximation, for several networks."""
    data: dict[str, Any] = {}
    claims: list[Claim] = []
    for width, depth in config.networks:
        models = trained(Setting(**{**_setting(config), "width": width, "depth": depth}))
        problem, space = models.problem(), models.examples.classes - 1
        exact = eigenpairs(Hessian(problem), k=config.k)
        found: dict[str, Any] = {"exact": exact.values}
        for form in ("principled", "printed"):
            guess = approximate_full_eigenpairs(problem, config.k, form=form)
            found[form] = guess.values
            found[f"{form}_overlap"] = nested_overlaps(exact.vectors, guess.vectors)
        name = f"F-{width}^{depth}"
        data[name] = found
        claims += _claims(name, found, space)
    return Outcome("wu2022.fig5", asdict(config), data, tuple(claims))


def _claims(name: str, found: dict[str, Any], space: int) -> list[Claim]:
    overlap = float(found["principled_overlap"][space - 1])
    log_gap = {
        form: float(np.abs(np.log(found[form][:space] / found["exact"][:space])).mean())
        for form in ("principled", "printed")
    }
    drop = found["principled"][space - 1] / found["principled"][space]
    true_drop = found["exact"][space - 1] / found["exact"][space]
    return [
        Claim(
            f"{name}: mean inputs and the output Hessian give most of the top c - 1 eigenspace of the full Hessian.",
            SOURCE,
            "overlap >= 0.6",
            f"{overlap:.3f} (as printed: {found['printed_overlap'][space - 1]:.3f})",
            overlap >= 0.6,
        ),
        Claim(
            f"{name}: the top c - 1 eigenvalues follow, with the principled form within a factor of two on average.",
            SOURCE,
            "mean |log quotient| <= log 2",
            f"{log_gap['principled']:.3f} (as printed: {log_gap['printed']:.3f})",
            log_gap["principled"] <= np.log(2),
        ),
        Claim(
            f"{name}: beyond c - 1 the approximation falls off faster than the Hessian, since it drops the covariance.",
            SOURCE,
            "its drop from eigenvalue c - 1 to c exceeds the Hessian's",
            f"{drop:.2f} against {true_drop:.2f}",
            bool(drop > true_drop),
        ),
    ]


def _setting(config: Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in Setting.__dataclass_fields__}


def figures(outcome: Outcome) -> dict[str, Any]:
    """Eigenvalues and overlap of the principled form for every network."""
    panels = {n: (d["exact"], d["principled"], d["principled_overlap"]) for n, d in outcome.data.items()}
    return {"full": plots.spectrum_and_overlap(panels)}


EXPERIMENT = Experiment(
    name="wu2022.fig5",
    title="The full Hessian from output Hessians and mean inputs",
    source="Wu et al., Figures 2(c, d) and 5",
    quick=Config(epochs=40, k=15, networks=((24, 2), (24, 3))),
    paper=Config(data="mnist", examples=4000, epochs=20, rate=0.05),
    run=run,
    figures=figures,
)
