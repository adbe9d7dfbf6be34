"""Table 10: PAC-Bayes bounds in the standard basis, in Hessian eigenbases, and with draws per example (ours)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ...errors import refuse
from ...pacbayes import Certificate, Settings
from ...plots.style import MUTED, THEORY, new_figure
from ...results.claims import Claim, Experiment, Outcome
from ._bounds import PRINTED, ROWS, Row, Training, certificates, prepare, table, with_data_prior

SOURCE = "Wu et al., Section 6, Table 10"
METHODS = ("base", "iter", "local", "appr", "iter_decay", "iter_m")


@dataclass(frozen=True)
class Config(Training):
    """`rows` by name; `epochs` is the budget of every method; `state` a folder that makes the run resumable."""

    rows: tuple[str, ...] = tuple(row.name for row in ROWS if row.name in PRINTED)
    methods: tuple[str, ...] = METHODS
    epochs: int = 10
    our_epochs: int = 6
    batch_size: int = 256
    refresh: int = 5
    draws: int = 180_000
    margin: float = 0.22  # by how much ITER must beat BASE where labels are true
    data_prior: bool = True  # also a prior trained on the first half of the data, bounded on the second
    state: str | None = None


def run(config: Config) -> Outcome:
    """Every row: short SGD, every method from the same weights, certified bounds."""
    known = {row.name: row for row in ROWS}
    unknown = [name for name in config.rows if name not in known]
    if unknown:
        refuse("rows must be of the table", f"{unknown}", f"There are: {', '.join(known)}.")
    data = {name: _row(known[name], config) for name in config.rows}
    claims = [claim for name in config.rows for claim in _claims(known[name], data[name], config)]
    return Outcome("wu2022.table10", asdict(config), data, tuple(claims))


def _row(row: Row, config: Config) -> dict[str, Any]:
    training = Training(**{f.name: getattr(config, f.name) for f in fields(Training)})
    prepared = prepare(row, training)
    state = None if config.state is None else f"{config.state}/{row.name}"
    found: dict[str, Certificate] = {}
    for method in config.methods:
        found |= certificates(prepared, [method], _settings(config, method), state)
    columns = table(found) | {
        "sgd_test_error": prepared.test_error,
        "examples": prepared.examples,
        "synthetic": prepared.synthetic,
    }
    if config.data_prior and not row.random_labels:
        columns["data_prior"] = table({"local": with_data_prior(row, training, _settings(config, "local"))})
    return columns


def _settings(config: Config, method: str) -> Settings:
    return Settings(
        epochs=config.our_epochs if method == "local" else config.epochs,
        batch_size=config.batch_size,
        refresh=config.refresh,
        draws=config.draws,
        seed=config.seed,
    )


def _claims(row: Row, found: dict[str, Any], config: Config) -> list[Claim]:
    place = {str(method): i for i, method in enumerate(found["method"])}
    bounds, tests = found["bound"], found["test_error"]
    claims = [
        Claim(
            f"{row.name}: every certified bound exceeds the stochastic network's error on test data.",
            SOURCE,
            "bound > test error",
            ", ".join(f"{m} {bounds[i]:.3f} > {tests[i]:.3f}" for m, i in place.items()),
            bool((bounds > tests).all()),
        )
    ]
    if {"base", "iter"} <= set(place) and not row.random_labels:
        gain = 1 - bounds[place["iter"]] / bounds[place["base"]]
        claims.append(
            Claim(
                f"{row.name}: Hessian eigenbases, recomputed, tighten the bound of the standard basis (same budget).",
                SOURCE,
                f"by at least {config.margin:.0%}",
                f"{bounds[place['iter']]:.4f} against {bounds[place['base']]:.4f}, by {gain:.1%}",
                bool(gain >= config.margin),
            )
        )
    if {"iter", "local"} <= set(place):
        ours, theirs = place["local"], place["iter"]
        # The quick size measures the interpreter, not the method.
        costs = ("gradients", "seconds") if found["seconds"].max() > 30 else ("gradients",)
        cheaper = all(found[key][ours] <= found[key][theirs] for key in costs)
        claims.append(
            Claim(
                f"{row.name}: our method is tighter than ITER with no more {' and no more '.join(costs)}.",
                "Hesscope, beyond the paper",
                "smaller bound at no more cost",
                f"{bounds[ours]:.4f} against {bounds[theirs]:.4f}; {found['gradients'][ours]} against "
                f"{found['gradients'][theirs]} gradients, {found['seconds'][ours]:.0f} against "
                f"{found['seconds'][theirs]:.0f} s",
                bool(bounds[ours] < bounds[theirs]) and cheaper,
            )
        )
    if "data_prior" in found:
        split = found["data_prior"]
        tighter = found["examples"] >= 10_000  # half of a small sample cannot pay for the other half
        claims.append(
            Claim(
                f"{row.name}: a prior trained on half of the data, bounded on the other half, is valid"
                + (" and tighter still." if tighter else "."),
                "Hesscope, beyond the paper (its prior sees no data)",
                "test error < bound" + (" < bounds of the random prior" if tighter else ""),
                f"{split['bound'][0]:.4f} (test error {split['test_error'][0]:.4f})",
                bool(split["test_error"][0] < split["bound"][0] < (bounds.min() if tighter else 1.0)),
            )
        )
    return claims


def figures(outcome: Outcome) -> dict[str, Any]:
    """Bounds and stochastic test errors of every row and method, with the printed values where there are any."""
    figure, axes = new_figure(1, len(outcome.data), width=4.2, height=3.6, squeeze=False, sharey=True)
    for axis, (name, found) in zip(axes[0], outcome.data.items(), strict=True):
        labels = [str(method) for method in found["method"]]
        place = np.arange(len(labels))
        axis.bar(place, found["bound"], width=0.7, label="certified bound")
        axis.bar(place, found["test_error"], width=0.7, color=MUTED, label="test error, stochastic network")
        for method, value in zip(("base", "iter"), PRINTED.get(name, ()), strict=False):
            if method in labels:
                where = labels.index(method)
                label = "printed (2000 epochs)" if method == "base" else None
                axis.plot([where - 0.4, where + 0.4], [value, value], color=THEORY, lw=2, label=label)
        if "data_prior" in found:
            axis.bar([len(labels)], found["data_prior"]["bound"], width=0.7, color=axis.patches[0].get_facecolor())
            axis.bar([len(labels)], found["data_prior"]["test_error"], width=0.7, color=MUTED)
            labels = [*labels, "local,\nsplit prior"]
        axis.set_xticks(np.arange(len(labels)), labels, rotation=35, ha="right")
        axis.set_title(name)
    axes[0][0].set_ylabel("error")
    axes[0][0].legend(fontsize=8)
    return {"bounds": figure}


EXPERIMENT = Experiment(
    name="wu2022.table10",
    title="PAC-Bayes bounds in Hessian eigenbases",
    source="Wu et al., Table 10",
    quick=Config(data="digits", rows=("T-50",), sgd_epochs=20, epochs=20, our_epochs=20, batch_size=100, draws=20_000),
    paper=Config(),
    run=run,
    figures=figures,
)
