"""Two-layer networks before and after training: sharpness, trace, norms and alignments of their weight matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ...measure import Array
from ...plots.style import CYCLE, MUTED, new_figure
from ...rng import Rng
from ._ensemble import Loss, Weights, pearson, sharpness, squared_norms, trained, widths_of
from ._truth import double_backward_hessian

MOMENTS = ("initialisation", "end of training")
NORMS = ("spectral", "Frobenius", "nuclear")


@dataclass(frozen=True)
class Study:
    """One family of networks: `networks` of them for every input and output size in `ends`."""

    parametrization: str
    width: int
    ends: tuple[int, ...]
    networks: int
    samples: int
    steps: int
    seed: int
    relu: bool = False


@dataclass(frozen=True, eq=False)
class Measured:
    """Arrays over (moment, size, network); `norms` and `alignments` by kind, norms also by layer."""

    sharpness: Array
    trace: Array
    norms: dict[str, Array]  # (moment, size, layer, network)
    alignments: dict[str, Array]
    fitted_rule: Array  # (size, network): λ_max predicted at zero residual covariance
    progress: Array  # (size,): final over initial excess loss, worst network
    trace_gap: Array  # (size,): of `trace` to double backward, relative, first network, worse moment


@lru_cache(maxsize=12)
def measure(study: Study) -> Measured:
    """Train every family of the study once; figures that share a study share the work."""
    rows = [_one_size(study, ends) for ends in study.ends]
    stacked = {key: np.stack([row[key] for row in rows], axis=1) for key in ("sharpness", "trace")}
    norms = {kind: np.stack([row["norms"][kind] for row in rows], axis=1) for kind in NORMS}
    alignments = {kind: np.stack([row["alignments"][kind] for row in rows], axis=1) for kind in NORMS}
    rule = np.stack([row["rule"] for row in rows])
    numbers = [np.array([row[key] for row in rows]) for key in ("progress", "trace_gap")]
    return Measured(stacked["sharpness"], stacked["trace"], norms, alignments, rule, *numbers)


def _one_size(study: Study, ends: int) -> dict[str, Any]:
    rng = Rng(study.seed).child("two-layer", study.relu, ends)
    family = trained(
        rng,
        study.parametrization,
        widths_of(2, study.width, ends),
        study.networks,
        study.samples,
        study.steps,
        study.relu,
    )
    x, loss, moments = family.inputs, family.loss, (family.start, family.end)
    scale = 1.0 / (ends * study.width) if study.parametrization == "NTP" else 1.0
    covariance = x.T @ x / len(x)
    traces = np.stack([_trace(weights, covariance, scale) for weights in moments])
    by_layer = [[squared_norms(layer) for layer in weights] for weights in moments]
    return {
        "sharpness": np.stack([sharpness(weights, loss).numpy() for weights in moments]),
        "trace": traces,
        "trace_gap": 0.0
        if study.relu
        else max(_trace_gap(w, loss, t[0]) for w, t in zip(moments, traces, strict=True)),
        "norms": {kind: np.array([[layer[kind] for layer in layers] for layers in by_layer]) for kind in NORMS},
        "alignments": {kind: np.stack([_alignment(weights)[kind] for weights in moments]) for kind in NORMS},
        "rule": _fitted_sharpness(family.end, covariance, scale),
        "progress": float(family.progress.max()),
    }


def _trace(weights: Weights, covariance: Tensor, scale: float) -> Array:
    """tr H = tr(Σ)|W2|² + K|W1 Σ^½|² of a linear network."""
    first, second = weights
    inner = torch.einsum("nmd,de,nme->n", first, covariance, first)
    return np.asarray(scale * (covariance.trace() * (second**2).sum((1, 2)) + second.shape[1] * inner).numpy())


def _trace_gap(weights: Weights, loss: Loss, trace: float) -> float:
    """Of one trace to the sum of eᵀHe by double backward, relative."""
    true = double_backward_hessian(lambda *first: loss(first).sum(), [w[:1] for w in weights]).trace()
    return float(abs(trace / true - 1))


def _fitted_sharpness(weights: Weights, covariance: Tensor, scale: float) -> Array:
    """λ_max of Σ^½ (|W2|² I + W1ᵀW1) Σ^½, which is λ_max(H) of a linear network when its slope is zero."""
    first, second = weights
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors @ torch.diag(values.clamp_min(0).sqrt()) @ vectors.T
    top = torch.linalg.svdvals(second)[:, 0, None, None] ** 2
    inner = top * torch.eye(len(covariance), dtype=torch.float64) + first.mT @ first
    return np.asarray(scale * torch.linalg.eigvalsh(root @ inner @ root)[:, -1].numpy())


def _alignment(weights: Weights) -> dict[str, Array]:
    """|tr(W2 W1)|, and the spectral and nuclear norm of W2 W1, of every network."""
    product = weights[1] @ weights[0]
    values = torch.linalg.svdvals(product)
    trace = product.diagonal(dim1=1, dim2=2).sum(1).abs()
    return {"spectral": values[:, 0].numpy(), "Frobenius": trace.numpy(), "nuclear": values.sum(1).numpy()}


def norm_correlations(found: Measured, of: Array) -> Array:
    """Pearson's r between `of` (moment, size, network) and each squared norm: (norm, moment, size, layer)."""
    moments, sizes = of.shape[:2]
    return np.array(
        [
            [
                [[pearson(of[t, e], found.norms[k][t, e, b]) for b in range(2)] for e in range(sizes)]
                for t in range(moments)
            ]
            for k in NORMS
        ]
    )


def alignment_correlations(found: Measured) -> Array:
    """Pearson's r between sharpness and each alignment: (kind, moment, size)."""
    moments, sizes = found.sharpness.shape[:2]
    return np.array(
        [
            [[pearson(found.sharpness[t, e], found.alignments[k][t, e]) for e in range(sizes)] for t in range(moments)]
            for k in NORMS
        ]
    )


def draw_norm_correlations(tables: dict[str, Array], ends: tuple[int, ...], what: str) -> Any:
    """One column for each parametrization, one row for each moment; colour is the norm, line style the layer."""
    figure, axes = new_figure(2, len(tables), width=4.2, height=3.2, squeeze=False, sharey=True)
    for column, (name, table) in enumerate(tables.items()):
        for t, moment in enumerate(MOMENTS):
            axis = axes[t, column]
            for k, norm in enumerate(NORMS):
                for layer, style in enumerate(("-", "--")):
                    label = f"{norm}, $W_{layer + 1}$"
                    axis.plot(ends, table[k, t, :, layer], style, marker="o", ms=3, color=CYCLE[k], label=label)
            axis.set(title=f"{name}, {moment}", xlabel="input and output size", ylim=(-1.05, 1.05))
            axis.axhline(0, color=MUTED, lw=0.8)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0, 0].set_ylabel(f"Pearson r with {what}")
        axes[1, 0].set_ylabel(f"Pearson r with {what}")
    axes[0, -1].legend(fontsize=7, loc="lower right", handlelength=4)
    return figure
