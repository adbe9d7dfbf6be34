"""Propositions 4 and 6: spectra of single hidden blocks, under CE and MSE, beside their laws for the same V; Lemma 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from ...measure import AtomicMeasure
from ...plots.style import MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rmt import block_law
from ...rng import Rng
from ..declared import Declared, Measured, at_most, more
from ..recipe import Experiment, Findings
from . import SOURCE

BLOCKS = {"diagonal": (0, 0), "off-diagonal": (0, 1)}
CASES = {"CE": "Proposition 4", "MSE": "Proposition 6"}
CLAIMS = (
    *(
        at_most(f"{loss}-{block}", f"{SOURCE}, {where}", f"{loss}, {block} block: the spectrum of one network is that of the law for its V "
                "(Kolmogorov distance over what is allowed)", 1.0, "by Dvoretzky, Kiefer and Wolfowitz the weights of N examples are off "
                "by more than 2.2/√N once in 10,000, and the spectrum by no more than a rank of that share, 2.2/√N + 1/d",
                basis="sampling theory")
        for loss, where in CASES.items()
        for block in BLOCKS
    ),
    more("orthogonal", f"{SOURCE}, Lemma 3, part 2", "At finite d the weights of two units are not orthogonal, as the lemma has it "
         "(mean |cos| times √d over its value √(2/π) for independent Gaussians)", 0.5, "exactly 0, if it were true", corrected=True),
    *(
        Declared(f"exchange-{block}", f"{SOURCE}, Lemma 2, ({number})", f"CE, {block} block: its Stieltjes transform and that of its decoupled "
                 "copy, whose weights come from independent data, differ by O(N^-1/2) (root mean square at four times N over that at N, minus "
                 "4 standard errors of it)", "<=", 0.5, "“O(N^-1/2)”: four times the examples halve it or more", "sampling theory")
        for block, number in (("diagonal", 70), ("off-diagonal", 71))
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    inputs: int = 300
    ratio: float = 0.5
    hidden: int = 6
    classes: int = 20
    exchange: int = 48  # inputs at the smaller of two sizes for Lemma 2
    repeats: int = 40
    seed: int = 0


def run(config: Config) -> Findings:
    """One network; all eigenvalues of H_11 and H_12 of its hidden layer."""
    d, n, m = config.inputs, round(config.inputs / config.ratio), config.hidden
    generator = Rng(config.seed).child("hidden spectra").numpy()
    x, w = generator.standard_normal((d, n)), generator.standard_normal((d, m)) / np.sqrt(d)
    v = generator.standard_normal((config.classes, m)) / np.sqrt(m)
    active = np.maximum(x.T @ w, 0.0)
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    allowed = 2.2 / np.sqrt(n) + 1 / d
    for loss in CASES:
        for block, (i, j) in BLOCKS.items():
            if loss == "MSE":
                on = (active[:, i] > 0) * (active[:, j] > 0)
                weights, law = 2 * (v[:, i] @ v[:, j]) * on, block_law.hidden_mse(config.ratio, v, i, j)
            else:
                weights = _ce_weights(x.T @ w, v, i, j)
                law = block_law.hidden_cross_entropy(config.ratio, v, i, j)
            values = np.linalg.eigvalsh((x * weights) @ x.T / n)
            values = np.where(np.abs(values) < 1e-10 * np.abs(values).max(), 0.0, values)
            gap = law.kolmogorov(AtomicMeasure.of(values))
            measured[f"{loss}-{block}"] = (gap / allowed, f"{gap:.4f} of {allowed:.4f} allowed")
            points = np.linspace(values.min(), values.max(), 200)
            data[f"{loss} {block}"] = {"values": values, "points": points, "cdf": law.cdf(points)}
    cosines = np.abs(np.corrcoef(w.T)[np.triu_indices(m, 1)])
    measured["orthogonal"] = float(cosines.mean() * np.sqrt(d) / np.sqrt(2 / np.pi))
    small, large = (_exchange(config, v, size) for size in (config.exchange, 4 * config.exchange))
    for number, block in enumerate(BLOCKS):
        quotient = float(np.sqrt((large[:, number] ** 2).mean() / (small[:, number] ** 2).mean()))
        spread = [np.std(s[:, number] ** 2, ddof=1) / np.mean(s[:, number] ** 2) for s in (small, large)]
        error = 0.5 * quotient * float(np.hypot(*spread)) / config.repeats**0.5
        measured[f"exchange-{block}"] = (quotient - 4 * error, f"{quotient:.3f} ± {error:.3f}")
    return data, measured


def _exchange(config: Config, v: Any, d: int) -> Any:
    """|s_G(z) - s_G~(z)| at z = i/m, the size of the weights, for both blocks of every draw: (repeats, 2)."""
    n, m = round(d / config.ratio), config.hidden
    rows = []
    for repeat in range(config.repeats):
        generator = Rng(config.seed).child("exchange", d, repeat).numpy()
        x, copy = generator.standard_normal((2, d, n))
        w = generator.standard_normal((d, m)) / np.sqrt(d)
        transforms = [
            [_stieltjes((x * _ce_weights(data.T @ w, v, i, j)) @ x.T / n, 1j / m) for i, j in BLOCKS.values()]
            for data in (x, copy)
        ]
        rows.append(np.abs(np.diff(transforms, axis=0)[0]))
    return np.array(rows)


def _ce_weights(inner: Any, v: Any, i: int, j: int) -> Any:
    """1_i 1_j (Σ_k p_k v_ki v_kj - Σ_k p_k v_ki Σ_k p_k v_kj) of every example."""
    active = np.maximum(inner, 0.0)
    p = softmax(active @ v.T, axis=1)
    on = (active[:, i] > 0) & (active[:, j] > 0)
    return on * (p @ (v[:, i] * v[:, j]) - (p @ v[:, i]) * (p @ v[:, j]))


def _stieltjes(matrix: Any, z: complex) -> complex:
    return complex(np.mean(1 / (np.linalg.eigvalsh(matrix) - z)))


def figures(result: Outcome) -> dict[str, Any]:
    """Distribution functions of the eigenvalues and of the laws."""
    figure, axes = new_figure(2, 2, width=4.2, height=2.9)
    for axis, (name, part) in zip(axes.flat, result.data.items(), strict=True):
        values = np.sort(part["values"])
        axis.step(
            values, np.arange(1, values.size + 1) / values.size, where="post", color=MEASURED, label="eigenvalues"
        )
        axis.plot(part["points"], part["cdf"], "--", color=THEORY, label="law for this V")
        axis.set(title=f"{name} block", xlabel="eigenvalue", ylabel="share below")
        axis.locator_params(axis="x", nbins=5)  # numbers of four digits do not fit more often
    axes[0, 0].legend(fontsize=8)
    return {"hidden_spectra": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "The limiting spectra of hidden blocks",
    "Dong et al. 2025, Propositions 4 and 6, Lemmas 2 and 3",
    quick=Config(),
    default=Config(inputs=1000, classes=100),
    paper=Config(inputs=2000, classes=1000, hidden=8),
    chosen="sizes: the paper proves these and draws nothing.",
)
