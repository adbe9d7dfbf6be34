"""Figures 14-16: NTP norms, alignments of the two matrices, and ReLU networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...plots.style import CYCLE, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import between, less, more
from ..recipe import Findings, experiment
from . import PAPER, fig4
from ._decided import UNDECIDED, decided, taken
from ._ensemble import PARAMETRIZATIONS
from ._two_layer import (
    MOMENTS,
    NORMS,
    Measured,
    Study,
    alignment_correlations,
    draw_norm_correlations,
    measure,
    norm_correlations,
)

CLAIMS = (
    more("NTP-lead", f"{PAPER}, Figure 14", "NTP, end of training: the spectral norm correlates most with the sharpness, at "
         "every size above 1 (smallest lead of r)", 0, "“it is the spectral norm that correlates most”"),
    more("NTP-both", f"{PAPER}, Figure 14, D.3.3", "NTP: the largest singular values of both matrices correlate with the sharpness "
         "(the smaller of the two mean r over sizes above 1, over the mean lead of the larger)", 1,
         "“both matrices correlate well”: the weaker r exceeds its distance to the stronger"),
    more("initial-NTP", f"{PAPER}, Figure 15, D.3.3", "NTP at initialisation: alignment correlates more with the sharpness than "
         "any norm of one matrix (mean lead of |r| over sizes above 1)", 0,
         f"“none of them correlates strongly ..., but we observe a larger correlation with weight matrix alignment”{UNDECIDED}"),
    *(
        more(f"initial-{name}", f"{PAPER}, Figure 15, D.3.3", f"{name} at initialisation, largest size: alignment correlates more "
             "with the sharpness than any norm of one matrix (lead of |r|)", 0,
             f"the same sentence: “as well as muP and SP for the larger D”{UNDECIDED}")
        for name in ("SP", "muP")
    ),
    less("end-alignment", f"{PAPER}, Figure 15", "Once fitted, the alignment is the teacher's, the same for every network, and "
         "explains less than the best norm (largest lead of |r|)", 0, "the identity W2 W1 = teacher", corrected=True),
    *(
        between(f"relu-W1-{name}", f"{PAPER}, Section 4.2, Figure 16", f"ReLU, {name}, end of training: r of the first matrix's "
                "squared spectral norm (mean over sizes above 1)", 0.25, 0.75, "“between 0.25 and 0.75 for the first weight "
                "matrix”")
        for name in PARAMETRIZATIONS
    ),
    *(
        more(f"relu-Frobenius-{name}", f"{PAPER}, Section 4.2, Figure 16", f"ReLU, {name}, end of training: of the first matrix's "
             "norms the Frobenius one correlates most (mean lead of r over sizes above 1)", 0,
             f"“the squared Frobenius norm correlates most strongly”{UNDECIDED}")
        for name in PARAMETRIZATIONS
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config(fig4.Config):
    """As for Figure 4, with samples and steps of the ReLU networks apart (their data cannot be compressed)."""

    relu_ends: tuple[int, ...] = (1, 4)
    relu_samples: int = 96
    relu_steps: int = 150


def run(config: Config) -> Findings:
    """Train the linear networks of three parametrizations, and ReLU networks of the same kinds."""
    c = config
    linear = fig4.studies(c, PARAMETRIZATIONS)
    relu = {
        p: measure(Study(p, c.width, c.relu_ends, c.networks, c.relu_samples, c.relu_steps, c.seed, relu=True))
        for p in PARAMETRIZATIONS
    }
    ntp = norm_correlations(linear["NTP"], linear["NTP"].sharpness)
    alignments = {name: alignment_correlations(m) for name, m in linear.items()}
    with_relu = {name: norm_correlations(m, m.sharpness) for name, m in relu.items()}
    wide = [i for i, ends in enumerate(c.ends) if ends > 1]
    best = fig4.best_over_layers(ntp)
    relu_wide = [i for i, ends in enumerate(c.relu_ends) if ends > 1]
    both = [float(np.mean(ntp[0, 1, wide, layer])) for layer in range(2)]
    norms = {name: norm_correlations(m, m.sharpness) for name, m in linear.items()}
    measured: dict[str, Any] = {
        "NTP-lead": float((best[0, 1, wide] - best[1:, 1, wide].max(axis=0)).min()),
        "NTP-both": min(both) / max(abs(both[0] - both[1]), 1e-12),
        "end-alignment": float(
            max((np.abs(alignments[n][:, 1]).max(0) - fig4.best_over_layers(norms[n])[0, 1]).max() for n in norms)
        ),
    }
    for name, table in with_relu.items():
        first = table[:, 1, relu_wide, 0]  # (norm, size)
        measured[f"relu-W1-{name}"] = float(first[0].mean())

    def numbers(index: NDArray[np.int64]) -> dict[str, float]:
        leads = _initial({name: taken(m, index) for name, m in linear.items()}, wide)
        return leads | {f"relu-Frobenius-{p}": _of_first(taken(m, index), relu_wide) for p, m in relu.items()}

    measured |= decided(CLAIMS, numbers, c.networks, Rng(c.seed).child("fig14_16"))
    return {"ntp": {"NTP": ntp}, "alignment": alignments, "relu": with_relu}, measured


def _initial(found: dict[str, Measured], wide: list[int]) -> dict[str, float]:
    """Alignment's lead over the best norm at initialisation: mean over sizes under NTP, at the largest size otherwise."""
    ahead = {
        name: np.abs(alignment_correlations(m)[:, 0]).max(axis=0)
        - np.abs(norm_correlations(m, m.sharpness)[:, 0]).max(axis=(0, 2))
        for name, m in found.items()
    }
    return {
        f"initial-{name}": float(lead[wide].mean()) if name == "NTP" else float(lead[-1])
        for name, lead in ahead.items()
    }


def _of_first(found: Measured, wide: list[int]) -> float:
    """The mean lead over sizes of the first matrix's Frobenius norm over its other norms, at the end of training."""
    first = norm_correlations(found, found.sharpness)[:, 1, wide, 0]  # (norm, size)
    return float((first[1] - first[[0, 2]].max(axis=0)).mean())


def figures(result: Outcome) -> dict[str, Any]:
    """Figure 14, 15 and 16."""
    ends = result.config["ends"]
    figure, axes = new_figure(2, 3, width=4.0, height=3.0, sharey=True)
    for column, (name, table) in enumerate(result.data["alignment"].items()):
        for t, moment in enumerate(MOMENTS):
            for k, norm in enumerate(NORMS):
                axes[t, column].plot(ends, table[k, t], marker="o", ms=3, color=CYCLE[k], label=norm)
            axes[t, column].set(title=f"{name}, {moment}", xlabel="input and output size", ylim=(-1.05, 1.05))
            axes[t, 0].set_ylabel("Pearson r, sharpness and alignment", fontsize=8)
    axes[0, 2].legend(fontsize=7)
    return {
        "fig14": draw_norm_correlations(result.data["ntp"], ends, "sharpness"),
        "fig15": figure,
        "fig16": draw_norm_correlations(result.data["relu"], result.config["relu_ends"], "sharpness"),
    }


EXPERIMENT = experiment(
    __name__,
    "Sharpness against norms (NTP, ReLU) and alignments",
    "Cracking the Hessian, Figures 14-16",
    quick=Config(),
    default=Config(ends=(1, 2, 4, 8, 16, 30), networks=100, steps=400, relu_ends=(1, 4, 8), relu_steps=300),
    paper=Config(
        width=100,
        ends=(1, 2, 5, 10, 20, 50, 100),
        networks=200,
        steps=4000,
        relu_ends=(1, 2, 5, 10, 20),
        relu_samples=1024,
        relu_steps=2000,
    ),
    chosen=f"{fig4.EXPERIMENT.chosen.removesuffix('.')}; ReLU networks at five sizes.",
)
