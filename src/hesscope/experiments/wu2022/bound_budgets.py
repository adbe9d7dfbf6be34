"""Table 10's bounds as the budget of epochs grows, and how each method comes to its bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plots.style import THEORY, panel_grid
from ...results.claims import Outcome
from ..declared import Measured, less
from ..long_runs import progress
from ..recipe import Findings, experiment
from ._bounds import CHOSEN, PAPER, PRINTED, ROWS, Optimised, prepare, settings_of, summary, training_of
from ._drawing import as_printed

SOURCE = "Wu et al., Section 6, Table 10"
METHODS = ("base", "iter", "local")
CLAIMS = (
    less("order", SOURCE, "ITER is tighter than BASE at every budget (largest bound over BASE's)", 1,
         "“tighter bounds compared to Dziugaite & Roy”"),
    less("local", "beyond Wu et al.", "Draws per example (local) are tighter than ITER at every budget (largest bound over ITER's)", 1,
         "“tighter”"),
    less("longer", SOURCE, "A longer optimisation gives a tighter bound, for every method (largest bound over that of the next smaller budget)",
         1, "the paper's bounds are those of 2000 epochs"),
    less("speed", "beyond Wu et al.", "ITER's lead over BASE is no matter of speed alone: it grows or stays with the budget (ITER over BASE at the "
         "largest budget, over the same at the smallest)", 1.05, "“stays”, to a twentieth", basis="convention"),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Optimised):
    """A row of Table 10 and the budgets in epochs, the same for every method; each has a schedule of its own."""

    row: str = "T-600"
    budgets: tuple[int, ...] = (3, 10, 30)


def run(config: Config) -> Findings:
    """Every method at every budget, all from the same weights."""
    row = next(row for row in ROWS if row.name == config.row)
    prepared = prepare(row, training_of(config))
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for budget in config.budgets:
        settings = settings_of(config, budget)
        for method, runs in found.items():
            progress(f"{row.name}: {method}, {budget} epochs")
            runs.append(summary(prepared, method, settings))  # type: ignore[arg-type]
    data: dict[str, Any] = {
        method: {
            key: np.array([run[key] for run in runs]) for key in ("bound", "kl", "train_error", "test_error", "seconds")
        }
        | {"history": runs[-1]["history"]}
        for method, runs in found.items()
    }
    return data, _measured(data)


def _measured(data: dict[str, Any]) -> dict[str, Measured]:
    bound = {method: found["bound"] for method, found in data.items()}
    lead = bound["iter"] / bound["base"]
    return {
        "order": float(lead.max()),
        "local": float((bound["local"] / bound["iter"]).max()),
        "longer": float(max((values[1:] / values[:-1]).max() for values in bound.values())),
        "speed": (float(lead[-1] / lead[0]), f"{lead[-1]:.3f} over {lead[0]:.3f}"),
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """Bounds over the budget with the printed ones; error and divergence along the longest run."""
    figure, (bounds, errors, divergences) = panel_grid(3, 3, width=3.6, height=3.2)
    budgets = outcome.config["budgets"]
    for method in METHODS:
        found = outcome.data[method]
        (line,) = bounds.semilogx(budgets, found["bound"], "o-", label=method)
        printed = PRINTED.get(outcome.config["row"], {}).get(method)
        if printed is not None:
            label = "paper, 2000 epochs" if method == "base" else None
            bounds.axhline(printed, color=line.get_color(), ls=":", lw=1.2, label=label)
        epochs = np.arange(1, len(found["history"]) + 1)
        errors.semilogy(epochs, found["history"][:, 0], color=line.get_color(), label=method)
        divergences.semilogy(epochs, found["history"][:, 1], color=line.get_color(), label=method)
    bounds.set_xticks(budgets, [str(budget) for budget in budgets])
    bounds.minorticks_off()
    bounds.set(xlabel="budget, epochs", ylabel="certified bound", title=as_printed(outcome.config["row"]))
    bounds.legend(fontsize=8)
    errors.set(xlabel="epoch", ylabel="error as minimised", title=f"{budgets[-1]} epochs")
    errors.axvline(budgets[-1] / 2, color=THEORY, lw=0.8, ls=":")
    errors.annotate("local: 0-1 error\nfrom here", (budgets[-1] / 2, 1), xycoords=("data", "axes fraction"), xytext=(3, -4),
                    textcoords="offset points", va="top", fontsize=7)  # fmt: skip
    for axis in (errors, divergences):
        axis.xaxis.get_major_locator().set_params(integer=True)
    divergences.set(xlabel="epoch", ylabel="KL(posterior ‖ prior)", title=f"{budgets[-1]} epochs")
    return {"budgets": figure}


EXPERIMENT = experiment(
    __name__,
    "Bounds in Hessian eigenbases as the budget grows",
    "Wu et al., Table 10, at several budgets",
    quick=Config(data="digits", row="T-50", sgd_epochs=20, budgets=(4, 16), batch_size=100, draws=20_000),
    default=Config(),
    paper=Config(**PAPER, budgets=(10, 100, 2000)),
    chosen=CHOSEN,
)
