"""Is there a pair of eigenvalues that sums to tr(H)/D? How close the best pair comes, and how close chance would come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...measure import Array
from ...plots.style import ACCENT, MEASURED, MUTED
from ...rng import Rng
from ._ensemble import initial_weights, mean_squared_loss, widths_of
from ._truth import double_backward_hessian


def _candidates(values: Array, targets: Array) -> tuple[Array, NDArray[np.int64]]:
    """For each target and each distinct eigenvalue its four nearest partners: gaps (t, k, 4) and partners.

    Eigenvalues that agree to 1e-9 of their range count as one, which may pair with itself when it is repeated. A pair that
    does not exist has an infinite gap.
    """
    ordered = np.sort(values)
    step = np.diff(ordered) > 1e-9 * max(np.ptp(ordered), 1e-300)
    starts = np.concatenate([[0], np.flatnonzero(step) + 1])
    distinct, counts = ordered[starts], np.diff(np.append(starts, ordered.size))
    here = np.arange(distinct.size)[:, None]
    partner = np.searchsorted(distinct, targets[:, None] - distinct)[:, :, None] + np.arange(-2, 2)
    inside = (partner >= 0) & (partner < distinct.size)
    partner = np.clip(partner, 0, distinct.size - 1)
    allowed = inside & ((partner != here) | (counts[here] > 1))
    gaps = np.abs(distinct[here] + distinct[partner] - targets[:, None, None])
    return np.where(allowed, gaps, np.inf), partner


def two_best_gaps(values: Array, target: float) -> tuple[float, float]:
    """The smallest and second smallest |λ_i + λ_j − target| over different pairs."""
    gaps, partner = (found[0] for found in _candidates(values, np.array([target])))
    here = np.broadcast_to(np.arange(len(gaps))[:, None], gaps.shape)
    pairs = {
        (min(i, j), max(i, j)): g for i, j, g in zip(here.flat, partner.flat, gaps.flat, strict=True) if g < np.inf
    }
    best, second = sorted([*pairs.values(), np.inf])[:2]
    return float(best), float(second)


def chance_rank(values: Array, target: float, rng: Rng, others: int = 99) -> float:
    """The share of targets drawn uniformly from [½, 3/2] target that some pair meets at least as well: ½ means chance."""
    rivals = target * rng.numpy().uniform(0.5, 1.5, size=others)
    best = _candidates(values, np.append(rivals, target))[0].min(axis=(1, 2))
    return float(np.mean(best[:-1] <= best[-1]))


def decorrelated(rng: Rng, samples: int, inputs: int) -> tuple[Array, Array]:
    """Features and a target of mean 0 and variance 1, all exactly uncorrelated."""
    raw = rng.numpy().normal(size=(samples, inputs + 1))
    columns = np.linalg.qr(np.concatenate([np.ones((samples, 1)), raw], axis=1)).Q[:, 1:] * samples**0.5
    return columns[:, :-1], columns[:, -1:]


def standardised(rng: Rng, samples: int, inputs: int) -> tuple[Array, Array]:
    """Independent normal features and target, each scaled to mean 0 and variance 1."""
    raw = rng.numpy().normal(size=(samples, inputs + 1))
    scaled = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    return scaled[:, :-1], scaled[:, -1:]


def orthonormal_weights(rng: Rng, width: int, inputs: int) -> tuple[Array, Array]:
    """w (1, m) normal and v (m, D) with orthonormal columns."""
    draw = rng.numpy()
    return draw.normal(size=(1, width)) / width**0.5, np.linalg.qr(draw.normal(size=(width, inputs))).Q


def dense_eigenvalues(rng: Rng, depth: int, width: int, x: Array, y: Array, relu: bool) -> Array:
    """All eigenvalues of a network of `depth` matrices at standard initialisation, by double backward."""
    inputs = x.shape[1]
    widths = (*widths_of(depth, width, inputs)[:-1], 1)
    weights = tuple(w[0] for w in initial_weights(rng, 1, widths, "SP"))
    loss: Callable[..., Tensor] = mean_squared_loss(torch.as_tensor(x), torch.as_tensor(y), widths, "SP", relu)
    return np.asarray(np.linalg.eigvalsh(double_backward_hessian(lambda *w: loss(w), weights)))


def summary(inputs: int, spectra: list[Array], rng: Rng) -> dict[str, Array]:
    """For each network: best and second best gap and the mean eigenvalue, all over tr/D; and the chance rank."""
    rows = []
    for number, values in enumerate(spectra):
        target = float(values.sum() / inputs)
        best, second = two_best_gaps(values, target)
        mean = float(values.mean())
        rows.append([best / target, second / target, mean / target, chance_rank(values, target, rng.child(number))])
    return dict(zip(("best", "second", "mean", "rank"), np.array(rows).T, strict=True))


def stacked(rows: list[dict[str, Array]]) -> dict[str, Array]:
    """Summaries of several input sizes as (size, network) arrays."""
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def rank_excess(tables: list[Array]) -> float:
    """(mean rank − ½) in standard errors over all networks: below −4 would mean better than chance."""
    ranks = np.concatenate([table.ravel() for table in tables])
    return float((ranks.mean() - 0.5) / (ranks.std() / ranks.size**0.5))


def draw(axis: Any, sizes: tuple[int, ...], table: dict[str, Array], title: str) -> None:
    """Median gaps of the best and second best pair beside the mean eigenvalue."""
    for key, color, label in (
        ("best", MEASURED, "best pair"),
        ("second", ACCENT, "second best pair"),
        ("mean", MUTED, "mean eigenvalue"),
    ):
        axis.plot(sizes, np.maximum(np.median(table[key], axis=1), 1e-17), marker="o", ms=4, color=color, label=label)
    axis.set(
        title=title, xlabel="input size D", ylabel=r"$|\lambda_i + \lambda_j - \mathrm{tr}/D|$ over tr/D", yscale="log"
    )
