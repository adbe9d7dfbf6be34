"""The method `local` without each of its parts: what makes its bound tight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import InputError
from ...pacbayes import PosteriorMethod
from ...pacbayes.settings import METHODS
from ...plots.style import MUTED, THEORY, panel_grid
from ...results.claims import Outcome
from ..declared import Measured, more
from ..long_runs import progress
from ..recipe import Findings, experiment
from ._bounds import CHOSEN, PAPER, ROWS, Optimised, prepare, settings_of, summary, training_of
from ._drawing import as_printed

PARTS: dict[str, tuple[str, dict[str, Any]]] = {  # what is left out, and how the method is then made
    "basis": ("the eigenbasis (the standard one instead)", {"basis": "standard"}),
    "draws": ("a draw per example (one per batch instead)", {"example_draws": False}),
    "error": ("the 0-1 error itself (cross-entropy throughout instead)", {"exact_error": False}),
    "inverse": ("the inverted bound (e + √(B/2) instead)", {"inverted_bound": False}),
    "variances": ("variances from curvature (s = w² at first, one number each, instead)", {"curved_variances": False}),
    "newton": ("Newton's steps of the means (Adam's instead)", {"newton_means": False}),
    "scales": ("a prior scale per tensor (one for all instead)", {"tensor_scales": False}),
}
ENOUGH = 10_000  # examples from which tensors have scales of their own
CLAIMS = tuple(
    more(part, "beyond Wu et al.", f"Without {says}, the bound is looser (bound over that of the whole method)", 1, "“looser”")
    for part, (says, _) in PARTS.items()
)  # fmt: skip


@dataclass(frozen=True)
class Config(Optimised):
    """A row of Table 10, and the budget that all have."""

    row: str = "T-600"
    epochs: int = 6


def run(config: Config) -> Findings:
    """The whole method and the method less each part, all from the same weights."""
    row = next(row for row in ROWS if row.name == config.row)
    settings = settings_of(config, config.epochs)
    prepared = prepare(row, training_of(config))
    methods: dict[str, PosteriorMethod] = {"whole": METHODS["local"]}
    methods |= {part: replace(METHODS["local"], **without) for part, (_, without) in PARTS.items()}
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    for name, method in methods.items():
        if name == "scales" and prepared.examples < ENOUGH:
            continue
        progress(f"{row.name}: {name}")
        try:
            data[name] = summary(prepared, method, settings)
        except InputError:
            if name == "whole":
                raise
            # The same settings served the whole method: without this part it leads to weights that are no numbers.
            measured[name] = (1 / data["whole"]["bound"], f"diverges, against {data['whole']['bound']:.4f}")
    whole = data["whole"]["bound"]
    measured |= {
        part: (data[part]["bound"] / whole, f"{data[part]['bound']:.4f} against {whole:.4f}")
        for part in PARTS
        if part in data
    }
    if "scales" not in data and "scales" not in measured:
        measured["scales"] = f"fewer than {ENOUGH:,} examples: one scale either way"
    return data, measured


def figures(outcome: Outcome) -> dict[str, Any]:
    """Bounds and errors of the whole and of what is left without each part; divergence along the epochs."""
    figure, (bars, curves) = panel_grid(2, 2, width=4.6, height=3.4)
    names = list(outcome.data)
    place = np.arange(len(names))
    bars.bar(place, [outcome.data[name]["bound"] for name in names], width=0.7, label="certified bound")
    errors = [outcome.data[name]["test_error"] for name in names]
    bars.bar(place, errors, width=0.7, color=MUTED, label="test error, stochastic network")
    diverged = [c.id for c in outcome.claims if c.id not in outcome.data and c.value is not None]
    if diverged:
        beyond = len(names) + np.arange(len(diverged))
        bars.bar(beyond, 1.0, width=0.7, fill=False, hatch="//", edgecolor=MUTED, label="no bound: diverges")
    bars.axhline(outcome.data["whole"]["bound"], color=THEORY, lw=1, ls=":", label="bound of the whole method")
    labels = ["whole", *(f"no {name}" for name in names[1:])]
    ticks = [*labels, *(f"no {name}" for name in diverged)]
    bars.set_xticks(np.arange(len(ticks)), ticks, rotation=35, ha="right")
    bars.set_ylabel("error")
    bars.set_title(f"{as_printed(outcome.config['row'])}, {outcome.config['epochs']} epochs")
    bars.set_ylim(0, 1.5 * bars.dataLim.ymax)  # room for the legend above the bars
    bars.legend(fontsize=8, loc="upper right")
    for name, label in zip(names, labels, strict=True):
        course = outcome.data[name]["history"][:, 1]
        lead = name == "whole"
        curves.semilogy(
            np.arange(1, len(course) + 1), course, label=label, lw=2.2 if lead else 1.1, zorder=3 if lead else 2
        )
    curves.set_xlabel("epoch")
    curves.set_ylabel("KL(posterior ‖ prior)")
    curves.xaxis.get_major_locator().set_params(integer=True)
    curves.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return {"parts": figure}


EXPERIMENT = experiment(
    __name__,
    "What makes draws per example tight, part by part",
    "beyond Wu et al., Table 10",
    quick=Config(data="digits", row="T-50", sgd_epochs=20, epochs=12, batch_size=100, draws=20_000),
    default=Config(),
    paper=Config(**PAPER, epochs=2000),
    chosen=f"the method is ours; {CHOSEN}",
)
