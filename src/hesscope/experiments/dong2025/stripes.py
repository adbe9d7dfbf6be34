"""Where the stripes of H_wv can be seen: (32) needs far fewer examples than d C, so N is varied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...plots.blocks import draw_heat
from ...plots.style import CYCLE, MUTED, new_figure
from ...results.claims import Experiment, Outcome
from ...results.declared import less, more
from ...rng import Rng
from ...structure import circulant_score, heat_map
from ._measured import SOURCE, network, outcome, problem_of

CLAIMS = (
    more("seen", f"{SOURCE}, Finding 2", "With few examples H_wv under CE is block-circulant (share of its squared norm in that pattern, "
         "smallest N)", 0.5, "“exhibits a block-circulant pattern”: more of it than of anything else"),
    less("falls", f"{SOURCE}, (32)", "The first term of (30) leads only while N is far below d C (the same share, largest N over smallest)", 0.5,
         "“leading term”: lost by half beyond that", corrected=True),
    less("monotone", f"{SOURCE}, (32)", "... and fades as N grows (largest quotient of successive shares)", 1.05,
         "each step down, but for the noise of one network: a twentieth", corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Random inputs and labels, as in Figure 3; N in units of d C."""

    inputs: int = 24
    hidden: int = 6
    classes: int = 24
    shares: tuple[float, ...] = (0.05, 0.5, 5.0, 50.0)
    pixels: int = 160
    seed: int = 0


def run(config: Config) -> Outcome:
    """The circulant score and the picture of one network at initialisation for every N."""
    d, c = config.inputs, config.classes
    rng = Rng(config.seed).child("stripes")
    scores, pictures, counts = [], [], []
    for share in config.shares:
        n = max(4, round(share * d * c))
        draw = rng.child(n).torch()
        x, y = torch.randn(n, d, generator=draw), torch.randint(0, c, (n,), generator=draw)
        problem = problem_of(network((d, config.hidden, c), rng.child("network")), "CE", x, y, c)
        scores.append(circulant_score(problem).score)
        picture = heat_map(problem, config.pixels)
        pictures.append(picture.image)
        counts.append(n)
    found = np.array(scores)
    data = {"scores": found, "pictures": np.stack(pictures), "bounds": picture.bounds, "examples": np.array(counts)}
    measured = {
        "seen": float(found[0]),
        "falls": float(found[-1] / found[0]),
        "monotone": float((found[1:] / found[:-1]).max()),
    }
    return outcome("stripes", config, data, CLAIMS, measured)


def figures(result: Outcome) -> dict[str, Any]:
    """|H| at every N, and the score over N/(d C)."""
    data, shares = result.data, np.asarray(result.config["shares"])
    columns = len(shares)
    figure, axes = new_figure(1, columns + 1, width=2.5, height=2.8)
    for axis, picture, n, share in zip(axes, data["pictures"], data["examples"], shares, strict=False):
        drawn = draw_heat(axis, picture, data["bounds"], f"N = {n}\nN/(dC) = {share:g}", ("w", "v"))
    if drawn is not None:
        figure.colorbar(drawn, ax=axes[columns - 1], shrink=0.7).set_label("√|H|, relative")
    axes[-1].semilogx(shares, data["scores"], "o-", color=CYCLE[0])
    axes[-1].axvline(1.0, color=MUTED, lw=0.8, ls=":")
    axes[-1].set(xlabel="N / (d C)", ylabel="share in stripes", ylim=(0, 1.05), title="H_wv under CE")
    return {"stripes": figure}


EXPERIMENT = Experiment(
    name="dong2025.stripes",
    title="When H_wv is striped: the number of examples against d C",
    source="Dong et al. 2025, Finding 2, (31)-(33)",
    quick=Config(),
    default=Config(inputs=64, hidden=8, classes=64, shares=(0.02, 0.1, 1.0, 10.0), pixels=320),
    paper=Config(inputs=500, hidden=8, classes=500, shares=(0.002, 0.02, 0.2), pixels=500),
    run=run,
    claims=CLAIMS,
    figures=figures,
    chosen="the numbers of examples; the paper's d and C.",
)
