"""The intuitive ratios (18), (22), (28) and (29) of Appendix A beside measured ones, and Lindeberg's exchange behind Theorem 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from ...plots.style import CYCLE, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt import block_limits
from ...rng import Rng
from ..declared import between, less, standard_errors
from ..recipe import Findings, experiment
from . import SOURCE
from ._limits import hidden_layer, squared_norm

HERE = f"{SOURCE}, Appendix A"
CLAIMS = (
    *(
        between(f"eq{number}", f"{HERE}, ({number})", f"{what}: the ratio of norms is 1/(C - 1) (measured times C - 1, largest C)", 0.9, 1.1,
                "“≈ 1/(C - 1)”, to a tenth", printed=1.0, basis="convention")
        for number, what in ((18, "Linear model, CE"), (29, "Output layer, CE"))
    ),
    *(
        standard_errors(f"eq{number}-corrected", f"{HERE}, ({number})", f"{what}: it is of that order, with the constant of the corrected "
                        "limits (root mean square ratio at the largest C)", corrected=True)
        for number, what in ((18, "Linear model, CE"), (29, "Output layer, CE"))
    ),
    less("eq22", f"{HERE}, (22)", "Hidden layer, MSE: Σ_c v_ci v_cj / Σ_c v_ci² vanishes as C grows (root mean square, largest over "
         "smallest C)", 1, "“C → ∞: Cov/Var = 0”"),
    between("eq22-norms", f"{HERE}, (22)", "... and is the ratio of the norms (mean quotient of the two, largest C)", 0.9, 1.1,
            "“≈”, to a tenth", printed=1.0, basis="convention"),
    less("eq28", f"{HERE}, (28)", "Hidden layer, CE: the printed quotient vanishes as C grows (root mean square, largest over smallest C)",
         0.5, "“C → ∞: Cov/Var = 0”: at least halved", basis="convention"),
    less("eq28-corrected", f"{HERE}, (28)", "... with 1/C in the products of sums it does (the same)", 0.5,
         "“C → ∞: Cov/Var = 0”: at least halved", corrected=True, basis="convention"),
    standard_errors("lindeberg", f"{SOURCE}, Appendix D, (38)-(40)", "Weights of independent copies of the data may stand in the place of p(X): "
                    "tr H²/d of the block and of its decoupled copy have the same mean (extrapolated in 1/d)"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    inputs: int = 128
    examples: int = 128
    hidden: int = 8
    classes: tuple[int, ...] = (4, 16, 64, 256)
    repeats: int = 40
    seed: int = 0


def run(config: Config) -> Findings:
    """Squared norms of first and second block of every network, and the quotients that the paper puts in their place."""
    rows = np.array([[_network(config, c, r) for r in range(config.repeats)] for c in config.classes])
    names = ("linear", "linear_off", "output", "output_off", "hidden", "hidden_off", "eq22", "eq28", "eq28_corrected")
    data: dict[str, Any] = dict(zip(names, np.moveaxis(rows, -1, 0), strict=True))
    last = config.classes[-1]
    limits = {
        18: block_limits.linear_cross_entropy(config.inputs / config.examples, last),
        29: block_limits.output_cross_entropy(last, config.hidden),
    }
    measured: dict[str, Any] = {}
    for number, key in ((18, "linear"), (29, "output")):
        own, off = data[key][-1], data[f"{key}_off"][-1]
        ratio = float(np.sqrt(off.mean() / own.mean()))
        measured[f"eq{number}"] = ratio * (last - 1)
        expected = float(np.sqrt(limits[number].off_diagonal[0] / limits[number].diagonal[0]))
        error = 0.5 * ratio * np.hypot(own.std() / own.mean(), off.std() / off.mean()) / np.sqrt(config.repeats)
        shown = f"{ratio * (last - 1):.3f} against {expected * (last - 1):.3f}, times 1/(C - 1)"
        measured[f"eq{number}-corrected"] = (abs(ratio - expected) / error, shown)
    size = {key: np.sqrt((data[key] ** 2).mean(1)) for key in ("eq22", "eq28", "eq28_corrected")}
    measured |= {
        "eq22": float(size["eq22"][-1] / size["eq22"][0]),
        "eq22-norms": float(np.mean(np.sqrt(data["hidden_off"][-1] / data["hidden"][-1]) / np.abs(data["eq22"][-1]))),
        "eq28": float(size["eq28"][-1] / size["eq28"][0]),
        "eq28-corrected": float(size["eq28_corrected"][-1] / size["eq28_corrected"][0]),
        "lindeberg": _lindeberg(config),
    }
    data["classes"] = np.array(config.classes)
    data["limit"] = np.array([limits[n].off_diagonal[0] / limits[n].diagonal[0] for n in (18, 29)])
    return data, measured


def _network(config: Config, classes: int, repeat: int) -> list[float]:
    generator = Rng(config.seed).child("heuristics", classes, repeat).numpy()
    d, n = config.inputs, config.examples
    x = generator.standard_normal((d, n))
    squared_gram = (x.T @ x) ** 2
    p = softmax(x.T @ generator.standard_normal((d, classes)) / np.sqrt(d), axis=1)
    linear = [squared_norm(squared_gram, w) for w in (p[:, 0] * (1 - p[:, 0]), p[:, 0] * p[:, 1])]
    active, v = hidden_layer(generator, x, config.hidden, classes)
    p = softmax(active @ v.T, axis=1)
    blocks = [(active.T * w) @ active / n for w in (p[:, 0] * (1 - p[:, 0]), p[:, 0] * p[:, 1])]
    one, both = active[:, 0] > 0, (active[:, 0] > 0) & (active[:, 1] > 0)
    inner, own = float(v[:, 0] @ v[:, 1]), float(v[:, 0] @ v[:, 0])
    hidden = [
        squared_norm(squared_gram, np.where(one, own, 0.0)),
        squared_norm(squared_gram, np.where(both, inner, 0.0)),
    ]
    sums = v.sum(0)
    printed = (inner - sums[0] * sums[1]) / (own - sums[0] ** 2)
    corrected = (inner - sums[0] * sums[1] / classes) / (own - sums[0] ** 2 / classes)
    return [*linear, *(float((b**2).sum()) for b in blocks), *hidden, inner / own, printed, corrected]


def _lindeberg(config: Config) -> tuple[float, str]:
    """tr H²/d with weights p(X) minus that with weights of an independent X, at d and d/2, extrapolated; in standard errors."""
    away = {}
    classes = config.classes[0]
    for d in (config.inputs, config.inputs // 2):
        rows = []
        for repeat in range(config.repeats):
            generator = Rng(config.seed).child("lindeberg", d, repeat).numpy()
            x, other = generator.standard_normal((2, d, d))
            weights = generator.standard_normal((d, classes)) / np.sqrt(d)
            squared_gram = (x.T @ x) ** 2
            p, q = softmax(x.T @ weights, axis=1)[:, 0], softmax(other.T @ weights, axis=1)[:, 0]
            rows.append((squared_norm(squared_gram, p * (1 - p)) - squared_norm(squared_gram, q * (1 - q))) / d)
        away[d] = np.array(rows)
    large, small = away[config.inputs], away[config.inputs // 2]
    mean = 2 * large.mean() - small.mean()
    error = np.sqrt((4 * large.var(ddof=1) + small.var(ddof=1)) / config.repeats)
    return float(abs(mean) / error), f"{mean:.2e} ± {error:.2e}"


def figures(result: Outcome) -> dict[str, Any]:
    """Measured ratios over C beside 1/(C - 1), and the two quotients (28)."""
    data = result.data
    classes = np.asarray(data["classes"], dtype=float)
    figure, (left, right) = new_figure(1, 2, width=4.6, height=3.4)
    for (key, label), ink in zip(
        (("linear", "linear, CE (18)"), ("output", "output layer, CE (29)")), CYCLE, strict=False
    ):
        ratio = np.sqrt(np.asarray(data[f"{key}_off"]).mean(1) / np.asarray(data[key]).mean(1))
        left.loglog(classes, ratio, "o-", color=ink, label=label)
    left.loglog(classes, 1 / (classes - 1), "--", color=THEORY, label="1/(C - 1)")
    left.set(xlabel="classes C", ylabel="off-diagonal / diagonal norm")
    for (key, label), ink in zip(
        (("eq22", "(22)"), ("eq28", "(28) as printed"), ("eq28_corrected", "(28) with 1/C")), CYCLE, strict=False
    ):
        size = np.sqrt((np.asarray(data[key]) ** 2).mean(1))
        right.loglog(classes, size, "o-", color=ink, label=label)
    right.set(xlabel="classes C", ylabel="root mean square of the quotient")
    for axis in (left, right):
        axis.legend(fontsize=8)
    return {"heuristics": figure}


EXPERIMENT = experiment(
    __name__,
    "The intuitive ratios, in numbers",
    "Dong et al. 2025, (18), (22), (28), (29), (38)-(40)",
    quick=Config(repeats=20),
    default=Config(inputs=300, examples=300, classes=(4, 16, 64, 256, 1000), repeats=200),
    paper=Config(inputs=1000, examples=1000, classes=(4, 16, 64, 256, 1000), repeats=200),
    chosen="everything: the paper gives these as intuition.",
)
