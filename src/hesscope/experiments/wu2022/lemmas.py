"""Appendix B, lemma by lemma: what the proofs of Theorems 4.1 and 4.2 rest on, on random networks of growing width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...kron import subspace_overlap
from ...plots.style import MUTED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ..declared import Declared, at_most, less, more, standard_errors
from ..long_runs import progress
from ..recipe import Experiment, Findings
from . import _appendix as of

SOURCE = "Wu et al., Appendix B"
HALVED = "a limit: the error is at least halved over these n (n^(-1/2) or faster by the proofs, eightfold n)"


def _falls(id: str, lemma: str, says: str, corrected: bool = False) -> Declared:
    return less(id, f"{SOURCE}, {lemma}", f"{says} (root mean square over networks, largest over smallest n)", 0.5,
                HALVED, basis="convention", corrected=corrected)  # fmt: skip


def _never(id: str, lemma: str, says: str) -> Declared:
    return at_most(
        id, f"{SOURCE}, {lemma}", f"{says} (share of networks where not, largest n)", 0.0, "“with probability 1”"
    )


def _tends(id: str, lemma: str, ratio: str) -> tuple[Declared, Declared]:
    where = f"{SOURCE}, {lemma}"
    how = "at n = ∞, extrapolated in 1/n from the two largest n"
    return (
        standard_errors(id, where, f"{ratio} tends to 1 ({how})"),
        standard_errors(f"{id}-corrected", where, f"{ratio} tends to (E[π]²/E[π²])² = 0.687 ({how})", corrected=True),
    )


CLAIMS = (
    _falls("B1", "Lemma B.1", "The row sums of W⁽²⁾ tend to 0"),
    standard_errors("B1-corrected", f"{SOURCE}, Lemma B.1", "They stay N(0, 1): variance 1 at every n (largest deviation)", corrected=True),
    at_most("B2", f"{SOURCE}, Lemma B.2", "Both tail bounds of χ² (largest Pr/e^(-t), by its distribution function)", 1.0, "an inequality"),
    _falls("B3", "Lemma B.3", "‖W⁽²⁾‖² tends to c and the squared length of every row to 1"),
    _never("B4", "Lemma B.4", "Columns of W⁽¹⁾ are shorter than 5 n^(-α/2)"),
    _falls("B5", "Lemma B.5", "W⁽¹⁾W⁽¹⁾ᵀ tends to the identity (spectral norm)"),
    standard_errors("B6", f"{SOURCE}, Lemma B.6", "The tail bound of Wishart matrices (largest excess of the frequency)"),
    _falls("cor-B1", "Corollary B.1", "W⁽²⁾W⁽²⁾ᵀ tends to the identity (spectral norm)"),
    _falls("B7", "Lemma B.7", "W⁽²⁾ᵀW⁽²⁾ tends to the projection on its rows (squared Frobenius norm)"),
    _never("B8", "Lemma B.8, Corollary B.2", "The largest entries are below 2 d^(-1/3) and 2 n^(-1/3)"),
    _falls("B9", "Lemma B.9", "Units' inputs are centred: the mean of W⁽¹⁾x given the weights tends to 0"),
    standard_errors("B9-corrected", f"{SOURCE}, Lemma B.9", "It is S_i/√(2π), S_i the row sum, with the variance (π-1)/(2π)|W_i|² of the lemma "
                    "(largest deviation of mean or variance over units, Bonferroni)", corrected=True),
    _falls("B10", "Lemma B.10", "z given the weights has mean 0 and variance (π-1)²/(4π²) (relative error of E[zzᵀ])"),
    _falls("B10-corrected", "Lemma B.10", "It has the mean W⁽²⁾E[y], E[y_i] of a rectified N(S_i/√(2π), (π-1)/(2π)), and the variance that "
           "these give (relative error of E[zzᵀ])", corrected=True),
    _falls("B11", "Lemma B.11", "z does not change when two units are known to be on and two inputs are fixed at n^(α/4)"),
    _falls("cor-B3", "Corollary B.3", "Nor does E[A], given two units (relative)"),
    _falls("B12", "Lemma B.12", "E[A] tends to its mean over z ~ N(0, (π-1)²/(4π²) I) (relative error)"),
    _falls("B12-corrected", "Lemma B.12", "It tends to that over z ~ N(W⁽²⁾E[y], v I) (relative error)", corrected=True),
    more("B12-rank", f"{SOURCE}, Lemma B.12, (121)", "λ_(c-1) of E[A] over its lower bound η (smallest over networks)", 1, "an inequality"),
    _falls("B13", "Lemma B.13", "E[p(A, D, x)] tends to E[p(A, D', x″)] (over random monomials)"),
    _falls("cor-B4", "Corollary B.4", "So do products with an independent copy (over random monomials)"),
    *_tends("B14", "Lemma B.14", "‖WMWᵀ‖²/‖M‖²"),
    _falls("B15", "Lemma B.15, (140)", "M* is (WᵀE[A]W + diag)/4 (relative error)"),
    _falls("B15-corrected", "Lemma B.15, (140)", "M* is Π WᵀE[A]W Π + diag(π(1-π)WᵀE[A]W) (relative error)", corrected=True),
    _never("B15-bounds", "Lemmas B.15, B.20", "η/4 < ‖M*‖, ‖M*‖_F < 2c² and η/32 < ‖Ȟ*‖_F < 2c²"),
    _falls("B16", "Lemma B.16", "‖M‖²/‖M*‖² tends to 1"),
    _falls("B17", "Lemma B.17", "WMWᵀ - WM*Wᵀ tends to 0 (relative)"),
    *_tends("B18", "Lemma B.18", "‖WM*Wᵀ‖²/‖M*‖²"),
    *_tends("B19", "Lemma B.19", "‖VȞVᵀ‖²/‖Ȟ‖²"),
    standard_errors("B20", f"{SOURCE}, (172), Lemma B.24", "E[xxᵀ] = 11ᵀ/(2π) + (π-1)/(2π) I: both eigenvalues (largest deviation)"),
    _falls("B21", "Lemma B.21", "‖Ȟ‖²/‖Ȟ*‖² tends to 1"),
    _falls("B22", "Lemma B.22", "‖VȞVᵀ‖²/‖VȞ*Vᵀ‖² tends to 1"),
    *_tends("B23", "Lemma B.23", "‖VȞ*Vᵀ‖²/‖Ȟ*‖²"),
    _falls("B25", "Lemma B.25", "VᵀV tends to the projection on the rows of V = W ⊗ U (squared Frobenius norm)"),
    _falls("cor-B5", "Corollary B.5", "The top c - 1 eigenspace of Ĥ tends to the centred rows of W ⊗ U (1 - overlap)"),
    _falls("cor-B5-corrected", "Corollary B.5", "It tends to the centred rows of WΠ ⊗ U (1 - overlap)", corrected=True),
)  # fmt: skip
RATIOS = ("B14", "B18", "B19", "B23")  # whose limit is another than printed


@dataclass(frozen=True)
class Config:
    """`d = n^(1 + alpha)`; widths must grow eightfold for the thresholds to be what the proofs give."""

    widths: tuple[int, ...] = (16, 32, 64, 128)
    alpha: float = 1.0
    classes: int = 4
    examples: int = 1000
    draws: int = 24
    seed: int = 0


def run(config: Config) -> Findings:
    """Every quantity at every width and network."""
    rows: list[list[dict[str, float]]] = []
    for n in config.widths:
        progress(f"width {n}")
        rows.append([_measure(config, n, draw) for draw in range(config.draws)])
    data: dict[str, Any] = {name: np.array([[one[name] for one in row] for row in rows]) for name in rows[0][0]}
    return data | {"widths": np.array(config.widths)}, _measured(config, data)


def _measure(config: Config, n: int, draw: int) -> dict[str, float]:
    rng = Rng(config.seed).child("lemmas", n, draw)
    d = round(n ** (1 + config.alpha))
    net = of.draw(rng, n, d, config.classes, config.examples)
    found = _weights(net) | _activations(config, net, rng) | _hessians(config, net)
    found["B11"], found["cor-B3"] = of.conditional_shift(net, n ** (config.alpha / 4))
    found["B13"], found["cor-B4"] = of.polynomial_differences(net, rng)
    return found


def _weights(net: of.Network) -> dict[str, float]:
    w, (c, n), d = net.second, net.second.shape, net.d
    basis = torch.linalg.qr(w.T)[0]
    scatter = float(torch.linalg.matrix_norm(w.T @ w - basis @ basis.T) ** 2)
    alpha = np.log(d / n) / np.log(n)
    short = float(net.first.norm(dim=0).max()) < 5 * n ** (-alpha / 2)
    small = float(net.first.abs().max()) <= 2 * d ** (-1 / 3) and float(w.abs().max()) <= 2 * n ** (-1 / 3)
    lengths = torch.cat([w.square().sum()[None] - c, w.square().sum(1) - 1])
    return {
        "B1": float(w.sum(1).square().mean() ** 0.5),
        "B3": float(lengths.square().mean() ** 0.5),
        "B4": float(not short),
        "B5": float(torch.linalg.matrix_norm(net.first @ net.first.T - torch.eye(n), 2)),
        "cor-B1": float(torch.linalg.matrix_norm(w @ w.T - torch.eye(c), 2)),
        "B7": scatter,
        "B8": float(not small),
        "B25": float(torch.linalg.matrix_norm(_lifted(w) - _lifted(basis.T)) ** 2),
    }


def _lifted(rows: Tensor, d: int = 3) -> Tensor:
    """VᵀV of V = rows ⊗ U, U = 1ᵀ/√d; its distances do not depend on d."""
    v = torch.kron(rows, torch.full((1, d), d**-0.5, dtype=rows.dtype))
    return v.T @ v


def _activations(config: Config, net: of.Network, rng: Rng) -> dict[str, float]:
    n, (count, _) = net.u.shape[1], net.u.shape
    mean, variance = net.u.mean(0), net.u.var(0)
    expected = net.first.sum(1) * of.MEAN
    law = of.VARIANCE * net.first.square().sum(1)
    kurtosis = ((net.u - mean) ** 4).mean(0) - variance**2
    scores = torch.cat(
        [(mean - expected).abs() / (law / count) ** 0.5, (variance - law).abs() / (kurtosis / count) ** 0.5]
    )
    chance = 2 * torch.special.ndtr(-scores.max()) * 2 * n  # of the largest of 2n
    one = float(-torch.special.ndtri((chance / 2).clamp(1e-300, 0.5)))
    moment = torch.stack([z.T @ z / len(z) for z in net.z.chunk(2)])
    ground = torch.eye(config.classes, dtype=torch.float64)
    y_mean, y_variance = of.rectified(expected, of.VARIANCE)
    printed = of.VARIANCE**2 * ground
    centre = net.second @ y_mean
    spread = float(y_variance.mean())
    corrected = torch.outer(centre, centre) + spread * ground
    a = torch.stack([half.mean(0) for half in net.a.chunk(2)])
    laws = [of.mean_curvature_law(m, v, rng) for m, v in ((torch.zeros_like(centre), of.VARIANCE**2), (centre, spread))]
    return {
        "B9": float(mean.square().mean() ** 0.5),
        "B9-corrected": one,
        "B10": of.relative(printed, moment),
        "B10-corrected": of.relative(corrected, moment),
        "B12": of.relative(laws[0], a),
        "B12-corrected": of.relative(laws[1], a),
        "B12-rank": float(torch.linalg.eigvalsh(a.mean(0))[1]) / _eta(config.classes),
        "x-first": float(((net.sums / net.d) ** 2).mean()),
        "x-first-error": float(((net.sums / net.d) ** 2).std() / count**0.5),
        "x-second": float(_rest(net).mean()),
        "x-second-error": float(_rest(net).std() / count**0.5),
    }


def _rest(net: of.Network) -> Tensor:
    """xᵀ(I - 11ᵀ/d)x/(d(d-1)): its mean is the other eigenvalue of E[xxᵀ]/d."""
    return (net.squares - net.sums**2 / net.d) / (net.d * (net.d - 1))


def _hessians(config: Config, net: of.Network) -> dict[str, float]:
    w, c = net.second, config.classes
    exact, bridge = of.output_hessians(net)
    inner = w.T @ net.a.mean(0) @ w
    pi = net.probabilities
    printed = (inner + torch.diag(inner.diagonal())) / 4
    corrected = pi[:, None] * inner * pi + torch.diag(pi * (1 - pi) * inner.diagonal())
    star, through = bridge.mean(0), w @ bridge @ w.T
    projected = w @ exact @ w.T
    x_norm = 1 / (4 * np.pi**2) + (1 - 1 / np.pi**2) / 4 / net.d  # ‖E[xxᵀ]‖²/d²
    x_along = (1 / (2 * np.pi) + of.VARIANCE / net.d) ** 2
    layer, layer_projected = of.layer_hessian_norms(net)
    layer_star = of.product(bridge) * x_norm
    top = torch.linalg.eigh(exact.mean(0))[1][:, 1 - c :]
    eta, norm = _eta(c), float(torch.linalg.matrix_norm(star))
    inside = eta / 4 < float(torch.linalg.matrix_norm(star, 2)) and norm < 2 * c**2
    return {
        "B14": of.product(projected) / of.product(exact),
        "B15": of.relative(printed, bridge),
        "B15-corrected": of.relative(corrected, bridge),
        "B15-bounds": float(not (inside and eta / 32 < layer_star**0.5 < 2 * c**2)),
        "B16": of.product(exact) / of.product(bridge),
        "B17": of.root(of.product(projected - through) / of.product(through)),
        "B18": of.product(through) / of.product(bridge),
        "B19": layer_projected / layer,
        "B21": layer / layer_star,
        "B22": layer_projected / (of.product(through) * x_along),
        "B23": of.product(through) * x_along / layer_star,
        "cor-B5": 1 - subspace_overlap(_centred_rows(w), top),
        "cor-B5-corrected": 1 - subspace_overlap(_centred_rows(w * pi), top),
    }


def _centred_rows(w: Tensor) -> Tensor:
    """An orthonormal basis of the span of the rows less their mean; ⊗ U changes no overlap."""
    basis: Tensor = torch.linalg.svd((w - w.mean(0)).T, full_matrices=False)[0]
    return basis[:, :-1]


def _eta(c: int) -> float:
    """The lower bound of λ_(c-1) in (121), with γ = (π-1)²/(4π²)."""
    gamma = of.VARIANCE**2
    return float(0.68**c * (np.exp(-2 * gamma) / c) ** 2 / (2 * c))


def _measured(config: Config, data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for claim in CLAIMS:
        if claim.limit != 0.5:
            continue
        values = np.abs(data[claim.id] - 1) if claim.id in ("B16", "B21", "B22") else data[claim.id]
        size = _size(values)
        found[claim.id] = (float(size[-1] / size[0]), f"{size[-1] / size[0]:.3f}: from {size[0]:.3g} to {size[-1]:.3g}")
    for name in RATIOS:
        found[name] = _limit(config, data[name], 1.0)
        found[f"{name}-corrected"] = _limit(config, data[name], of.SHARE**2)
    found |= {name: float(data[name][-1].mean()) for name in ("B4", "B8", "B15-bounds")}
    # Variance of normal row sums: its estimate from c values per network has the relative variance 2/(c draws).
    row_sums = (data["B1"] ** 2).mean(1)
    error = np.sqrt(2 / (config.classes * config.draws))
    found["B1-corrected"] = float(np.abs(row_sums - 1).max() / error)
    found["B2"] = of.chi_square_excess()
    found["B6"] = of.wishart_excess(Rng(config.seed).child("B6"), 20_000)
    found["B9-corrected"] = float(data["B9-corrected"].max())
    found["B12-rank"] = float(data["B12-rank"].min())
    d = np.array([round(n ** (1 + config.alpha)) for n in config.widths])[:, None]
    truth = {"x-first": 1 / (2 * np.pi) + of.VARIANCE / d, "x-second": of.VARIANCE / d}
    found["B20"] = max(float((np.abs(data[k] - v) / data[f"{k}-error"]).max()) for k, v in truth.items())
    return found


def _size(values: Any) -> Any:
    """Root mean square over networks of signed roots."""
    return np.sqrt(np.maximum((values * np.abs(values)).mean(1), 0.0))


def _limit(config: Config, ratios: Any, limit: float) -> Any:
    """Standard errors between the ratio at n = ∞ and a limit; undecided where they do not tell 1 from 0.687."""
    small, large = config.widths[-2:]
    weight = large / (large - small)
    mean = weight * ratios[-1].mean() - (weight - 1) * ratios[-2].mean()
    variance = weight**2 * ratios[-1].var(ddof=1) + (weight - 1) ** 2 * ratios[-2].var(ddof=1)
    error = float(np.sqrt(variance / config.draws))
    said = f"{mean:.3f} ± {error:.3f} against {limit:.3f}"
    return (float(abs(mean - limit) / error), said) if 4 * error < 1 - of.SHARE**2 else f"{said}: too wide to tell"


def figures(outcome: Outcome) -> dict[str, Any]:
    """Limits as printed and corrected, over the width."""
    data = outcome.data

    def mean(name: str) -> Any:
        return _size(np.asarray(data[name]))

    names = {
        "B1": "B.1: row sums", "B5": "B.5: W⁽¹⁾W⁽¹⁾ᵀ - I", "B7": "B.7: WᵀW - P", "B9": "B.9: mean of W⁽¹⁾x", "B11": "B.11: z, conditioned",
        "B13": "B.13: polynomials", "B17": "B.17: WMWᵀ - WM*Wᵀ",
    }  # fmt: skip
    figure, (left, right) = new_figure(1, 2, width=5.0, height=4.6)
    for name, label in names.items():
        left.loglog(data["widths"], mean(name), "o-", markersize=3, label=label)
    for name in ("B14", "B16", "B18", "B19", "B21", "B23"):
        right.plot(data["widths"], np.asarray(data[name]).mean(1), "o-", markersize=3, label=f"{name[0]}.{name[1:]}")
    right.axhline(1.0, color=MUTED, ls=":", lw=1, label="limit as printed")
    right.axhline(of.SHARE**2, color=THEORY, ls="--", lw=1, label="0.687, corrected limit of B.14, 18, 19, 23")
    right.set(xscale="log", yscale="log", yticks=(0.7, 1, 2, 3), yticklabels=("0.7", "1", "2", "3"))
    right.minorticks_off()
    for axis, title in ((left, "errors that the lemmas let tend to 0"), (right, "ratios that they let tend to 1")):
        axis.set(title=title, xlabel="width n")
        axis.set_xticks(data["widths"], [str(n) for n in data["widths"]], minor=False)
        axis.set_xticks([], minor=True)
        axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)
    return {"lemmas": figure}


EXPERIMENT = Experiment.of(
    __name__,
    "The lemmas of Appendix B, one by one",
    "Wu et al., Lemmas B.1 to B.25, Corollaries B.1 to B.5",
    quick=Config(widths=(8, 16, 32, 64), examples=600, draws=8),
    default=Config(),
    paper=Config(examples=2000, draws=60),
    chosen="everything: the lemmas have no experiment of their own; d = n², four classes.",
)
