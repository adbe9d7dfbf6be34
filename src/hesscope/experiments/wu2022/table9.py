"""Table 9: with batch-norm (frozen statistics) inputs are centred, and E[x xᵀ] is no longer close to rank one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...results.claims import Outcome
from ..declared import less
from ..recipe import Findings, experiment
from ._fits import where_trained
from ._inputs import CLASSES, WITHOUT, declared, draw, fit_in, in_rows, measure, setting_of
from ._printed import TABLE_9, known_rows
from ._trained import START, Setting, only_setting

SOURCE = "Wu et al., Table 9, Section G.4"
CLAIMS = (
    less("alignment", SOURCE, "Batch-norm takes the mean direction away (largest quotient of mean (v₁ᵀÊ[x])², with over without)", 1,
         "“the high inner product ... do[es] not hold here”"),
    less("ratio", SOURCE, "... and the spectral gap (largest quotient of mean λ₁/λ₂, with over without)", 1,
         "“... and large spectral ratio both do not hold”"),
    *(one for row in TABLE_9 for one in declared(row)),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    """`rows` by id, as "mnist-F-200^2-BN-fc"; empty for small networks on `data`, which no row of the paper has.

    `common` as for Table 6.
    """

    rows: tuple[str, ...] = ()
    runs: int = 3
    common: bool = False


def run(config: Config) -> Findings:
    """Every network with and without batch-norm; layers behind the first."""
    known = known_rows(config.rows, {row.id: row for row in TABLE_9}, "Table 9")
    base = only_setting(config)
    cases = {name: setting_of(known[name], base, config.common) for name in config.rows}
    if not cases:
        cases = {name: replace(base, network=name, batch_norm=True) for name in ("dense", "lenet5")}
    data: dict[str, Any] = {}
    quotients: dict[str, list[float]] = {"alignment": [], "ratio": []}
    for name, setting in cases.items():
        data[name] = measure(setting, config.runs, name)["fc"]
        without = name + WITHOUT
        data[without] = measure(replace(setting, batch_norm=False), config.runs, without)["fc"]
        for key, found in quotients.items():
            found.append(float(data[name][key].mean() / data[without][key].mean()))
    fits = [fit_in(data[name + more], CLASSES[each.data]) for name, each in cases.items() for more in ("", WITHOUT)]
    whole = where_trained({key: max(found) for key, found in quotients.items()}, *fits)
    return data, in_rows(TABLE_9, data) | whole


def figures(outcome: Outcome) -> dict[str, Any]:
    """Means and ranges beside the printed ones."""
    return draw(outcome, TABLE_9)


EXPERIMENT = experiment(
    __name__,
    "Batch-norm removes the rank-one structure of inputs",
    "Wu et al., Table 9",
    quick=Config(width=48, epochs=6, batch_size=32, runs=2),
    default=Config(rows=tuple(row.id for row in TABLE_9), runs=1, common=True),
    paper=Config(rows=tuple(row.id for row in TABLE_9), epochs=1000, rate=0.01),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand. {START}",
)
