"""Figures 29 and 30: logit gradients cluster by logit at initialisation; at a minimum the classes matter too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...kron import logit_gradients, predicted_output_eigenspace
from ...plots import kron as plots
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import less, more
from ..recipe import Findings, experiment
from ._fits import as_data, fit_of, results, where_trained, with_fits
from ._trained import MNIST, START, Setting, trained, untrained

SOURCE = "Wu et al., Figures 29 and 30, Section G.5"
CLAIMS = (
    *(
        more(f"initial-{kind}", "Wu et al., Figure 29", f"{name} at initialisation clusters by logit, not by class (variance between logits "
             "over that between classes)", 1, "“clusters” by the one that holds more")
        for kind, name in (("gamma", "Γ"), ("delta", "Δ"))
    ),
    more("class-grows", "Wu et al., Figure 30", "At the minimum Γ clusters by class more than at initialisation (difference of the shares "
         "of variance)", 0, "the classes of Figure 30 that Figure 29 does not have"),
    less("class-weak", "Wu et al., Figure 30", "... but the logits still hold more (variance between classes over that between logits, at the "
         "minimum)", 1, "“clustering by class is weak”"),
    more("centres", "Wu et al., (273)", "At initialisation the centres are the rows of (I - 11ᵀ/c) S up to scale (mean cosine, with "
         "activation frequencies)", 0.5, "“approximately”: more along them than across", corrected=True, basis="convention"),
    less("factor", "Wu et al., (273)", "(273) misses 2^-(L-p): the printed centres are too long (|log| of the length with activation "
         "frequencies over |log| of the printed one, both against the measured centres)", 1, "the corrected length must be the nearer one",
         corrected=True),
    less("identity", "Wu et al., (271)", "(271) is no identity: class means carry only part of tr E[M] (share at the minimum)", 0.99,
         "an identity would give 1, up to rounding", corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    layer: str = "fc1"


def run(config: Config) -> Findings:
    """Shares of variance between logits and between classes, of Γ and Δ, before and after training."""
    data: dict[str, Any] = {}
    cases = {"initialisation": untrained(config), "minimum": trained(config)}
    for name, models in cases.items():
        problem = models.problem()
        found = logit_gradients(problem, config.layer)
        s = predicted_output_eigenspace(problem, config.layer).logit_map
        centres = found.gamma.mean(0)
        predicted = (s - s.mean(0)).to(centres)
        plain = _product(models.models[0], config.layer).to(centres)
        printed = plain - plain.mean(0)
        data[name] = {
            "gamma": found.clustering("gamma"),
            "delta": found.clustering("delta"),
            "explained": found.explained(),
            "lengths": np.array([float(torch.linalg.matrix_norm(m)) for m in (centres, predicted, printed)]),
            "centres": float(torch.nn.functional.cosine_similarity(centres, predicted, dim=1).mean()),
            "gamma points": found.embedding("gamma", Rng(config.seed)),
            "delta points": found.embedding("delta", Rng(config.seed)),
        }
    fit = fit_of(cases["minimum"])
    of_any = ("initial-gamma", "initial-delta", "centres", "factor")
    return data | as_data({config.network: fit}), where_trained(_measured(data), fit, but=of_any)


def _product(model: torch.nn.Module, layer: str) -> torch.Tensor:
    """W^(L) ... W^(p+1): the printed S, every unit on."""
    linear = [(name, m.weight.detach()) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    after = [weight for name, weight in linear][[name for name, _ in linear].index(layer) + 1 :]
    found = after[-1]
    for weight in reversed(after[:-1]):
        found = found @ weight
    return found


def _measured(data: dict[str, Any]) -> dict[str, float]:
    start, end = data["initialisation"], data["minimum"]
    true, frequent, printed = start["lengths"]
    return {
        **{f"initial-{kind}": float(start[kind][0] / start[kind][1]) for kind in ("gamma", "delta")},
        "class-grows": float(end["gamma"][1] - start["gamma"][1]),
        "class-weak": float(end["gamma"][1] / end["gamma"][0]),
        "centres": start["centres"],
        "factor": float(abs(np.log(frequent / true)) / abs(np.log(printed / true))),
        "identity": float(end["explained"]),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """t-SNE of Γ and Δ before and after training."""
    drawn = {
        name: plots.clusters({"Γ": found["gamma points"], "Δ": found["delta points"]})
        for name, found in results(outcome).items()
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Clustering of logit gradients",
    "Wu et al., Figures 29 and 30",
    quick=Config(width=48, epochs=30),
    default=Config(**MNIST, width=200),
    paper=Config(data="mnist", width=200, epochs=1000, rate=0.01),
    chosen=f"fc1 of F-200² on MNIST. {START}",
)
