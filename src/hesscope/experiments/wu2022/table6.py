"""Tables 6 and 7: E[x xᵀ] of hidden layers is close to rank one, along E[x]; every row beside the printed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...results.claims import Outcome
from ..declared import Measured, at_least, more
from ..recipe import Findings, experiment
from ._fits import where_trained
from ._inputs import CLASSES, declared, draw, fit_in, in_rows, measure, setting_of
from ._printed import TABLE_6, TABLE_7, InputRow, known_rows
from ._trained import START, Setting, only_setting

ROWS = (*TABLE_6, *TABLE_7)
SOURCE = "Wu et al., Tables 6 and 7"
CLAIMS = (
    more("dominates", SOURCE, "The mean dominates: in every layer measured, the top eigenvector of E[x xᵀ] is nearer to Ê[x] than "
         "to anything else (smallest (v₁ᵀÊ[x])²)", 0.5, "“E[x]E[xᵀ] indeed dominated the autocorrelation matrix”", basis="convention"),
    at_least("bound", "Wu et al., (264)", "λ₁/λ₂ >= |E x|²/‖Σ‖, without the -1, in every fully connected layer (smallest quotient)",
             1 - 1e-9, "an inequality, up to rounding", corrected=True),
    *(one for row in ROWS for one in declared(row)),
)  # fmt: skip
ALL = tuple(row.id for row in ROWS)


@dataclass(frozen=True)
class Config(Setting):
    """`rows` by id, as "mnist-F-200^2-fc"; empty for one small network on `data` instead, which no row of the paper has.

    `common` trains every row as the default sizes of this paper do, in place of the epochs and the rate given here; how is
    written down beside each row.
    """

    rows: tuple[str, ...] = ()
    runs: int = 5
    common: bool = False


def run(config: Config) -> Findings:
    """Fully connected layers and convolutions but the first of every network."""
    known = known_rows(config.rows, {row.id: row for row in ROWS}, "Tables 6 and 7")
    base = only_setting(config)
    data: dict[str, Any] = {}
    networks: dict[Setting, dict[str, Any]] = {}  # Tables 6 and 7 have several rows of one network
    for name in config.rows:
        setting = setting_of(known[name], base, config.common)
        if setting not in networks:
            networks[setting] = measure(setting, config.runs, name)
        data[name] = networks[setting]["conv" if known[name].table == 7 else "fc"]
    if not config.rows:
        data = {
            f"{config.network}, {kind}": found for kind, found in measure(base, config.runs, config.network).items()
        }
    measured = in_rows(ROWS, data)
    measured["dominates"] = _dominates(known, data, CLASSES[config.data])
    bounded = [found for found in data.values() if not np.isnan(found["bound"]).any()]
    if bounded:
        measured["bound"] = min(float((found["ratio"] / found["bound"]).min()) for found in bounded)
    return data, measured


def _dominates(known: dict[str, InputRow], data: dict[str, Any], classes: int) -> Measured:
    """The smallest alignment of the networks that are trained, and how many these are."""
    fits = {
        name: fit_in(found, CLASSES[known[name].data] if name in known else classes) for name, found in data.items()
    }
    smallest = [float(data[name]["alignment"].min()) for name, fit in fits.items() if fit.trained]
    if not smallest:
        return where_trained({"dominates": 0.0}, *fits.values())["dominates"]
    return min(smallest), f"{min(smallest):.4g} in {len(smallest)} trained of {len(fits)} networks"


def figures(outcome: Outcome) -> dict[str, Any]:
    """Means and ranges beside the printed ones."""
    return draw(outcome, ROWS)


EXPERIMENT = experiment(
    __name__,
    "Inputs of hidden layers are close to their mean direction",
    "Wu et al., Tables 6 and 7",
    quick=Config(network="lenet5", epochs=8, rate=0.1, batch_size=32, runs=2),
    default=Config(rows=ALL, runs=1, common=True),
    paper=Config(rows=ALL, epochs=1000, rate=0.01),
    chosen="10,000 of the 50,000 images of CIFAR-10 and 5,000 of those of CIFAR-100 are at hand; VGG11-W64 is printed twice. "
    + START,
)
