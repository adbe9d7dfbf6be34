"""Figures 2(c, d) and 5: top eigenpairs of the full Hessian from output Hessians and mean inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...curvature import Hessian
from ...kron import approximate_full_eigenpairs
from ...kron.subspaces import nested_overlaps
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import less, more
from ..recipe import Findings, experiment
from ._drawing import as_printed
from ._fits import TrainingFit, as_data, fit_of, results, where_trained, with_fits
from ._spectra import closeness
from ._trained import MNIST, START, Setting, trained

SOURCE = "Wu et al., Figure 5, Appendix C"
NETWORKS = ("F-200^2", "F-200^4", "F-600^4", "F-600^8")
CLAIMS = tuple(
    one
    for place, name in enumerate(NETWORKS, start=1)
    for one in (
        more(f"overlap-{place}", SOURCE, f"Network {place} (paper: {name}): mean inputs and the output Hessian give the top c - 1 eigenspace "
             "of the full Hessian, as printed (overlap)", 0.5, "“works reasonably well on the top eigenspace”: for most of it", basis="convention"),
        less(f"values-{place}", SOURCE, f"Network {place} (paper: {name}): they give its top c - 1 eigenvalues, as printed (mean |log "
             "quotient| over the range on that scale)", 0.1, "the two curves lie on each other: a tenth of their height apart at most", basis="convention"),
        more(f"principled-{place}", SOURCE, f"Network {place} (paper: {name}): the eigenpairs of S^½ E[M] S^½ give more of that space than the "
             "printed form (difference of the overlaps)", -1e-9, "the exact eigenpairs of the same approximation", corrected=True),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    k: int = 50
    networks: tuple[tuple[int, int], ...] = ((200, 2), (200, 4), (600, 4), (600, 8))  # (width, depth)


def run(config: Config) -> Findings:
    """Exact eigenpairs by Lanczos beside the principled and the printed approximation, for several networks."""
    data: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    fits: dict[str, TrainingFit] = {}
    for place, (width, depth) in enumerate(config.networks, start=1):
        models = trained(replace(config, width=width, depth=depth))
        problem, space = models.problem(), models.examples.classes - 1
        exact = eigenpairs(Hessian(problem), k=config.k)
        found: dict[str, Any] = {"exact": exact.values}
        for form in ("principled", "printed"):
            guess = approximate_full_eigenpairs(problem, config.k, form=form)
            found[form] = guess.values
            found[f"{form}_overlap"] = nested_overlaps(exact.vectors, guess.vectors)
        name = f"F-{width}^{depth}"
        data[name] = found
        fits[name] = fit_of(models)
        overlap = {form: float(found[f"{form}_overlap"][space - 1]) for form in ("printed", "principled")}
        here: dict[str, Any] = {
            f"overlap-{place}": overlap["printed"],
            f"values-{place}": closeness(found["printed"], found["exact"], space),
            f"principled-{place}": (
                overlap["principled"] - overlap["printed"],
                f"{overlap['principled']:.3f} against {overlap['printed']:.3f}",
            ),
        }
        measured |= where_trained(here, fits[name])
    return data | as_data(fits), measured


def figures(outcome: Outcome) -> dict[str, Any]:
    """Eigenvalues and overlap of both forms for every network."""
    drawn = {
        form: plots.spectrum_and_overlap(
            {as_printed(n): (d["exact"], d[form], d[f"{form}_overlap"]) for n, d in results(outcome).items()},
            guess=label,
        )
        for form, label in (("printed", "Appendix C, as printed"), ("principled", "Appendix C, exact pairs"))
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "The full Hessian from output Hessians and mean inputs",
    "Wu et al., Figures 2(c, d) and 5",
    quick=Config(epochs=40, k=15, networks=((24, 2), (24, 3))),
    default=Config(**{**MNIST, "measured_on": 500}, k=20, networks=((200, 2), (200, 4))),
    paper=Config(data="mnist", epochs=1000, rate=0.01),
    chosen=f"k = 50 eigenvalues. {START}",
)
