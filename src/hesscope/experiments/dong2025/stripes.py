"""How striped H_wv is at initialisation: the two terms of (30) against the number of examples, with the law that they follow.

For a fixed network E‖H_wv‖² = ‖E h‖² + (E‖h‖² - ‖E h‖²)/N exactly, h being the Hessian of one example: noise and mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...curvature import Problem
from ...plots.style import ACCENT, MEASURED, MUTED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import heat_map
from ..declared import between, more, standard_errors
from ..recipe import Findings, experiment
from ._measured import SOURCE, draw_maps, network, problem_of

CLAIMS = (
    more("seen", f"{SOURCE}, Finding 2", "With few examples H_wv under CE is block-circulant (share of its squared norm in that pattern, "
         "smallest N)", 0.5, "“exhibits a block-circulant pattern”: more of it than of anything else", basis="convention"),
    more("everywhere", f"{SOURCE}, Finding 2", "... and with any number of examples (smallest share over N)", 0.5,
         "“exhibits a block-circulant pattern”, with no condition on N", basis="convention"),
    more("leads-few", f"{SOURCE}, (32)", "With few examples the first term of (30) leads (its squared norm over that of the second, "
         "smallest N)", 1, "“leading term”"),
    more("leads", f"{SOURCE}, (32)", "... and with any number of them (smallest quotient over N)", 1,
         "“leading term”, with no condition on N"),
    standard_errors("law", f"{SOURCE}, (30)-(33)", "The share in stripes at every N is that of noise/N plus mean (largest deviation)",
                    corrected=True),
    between("balance", f"{SOURCE}, (32)", "Noise, which is the first term's, and mean are equal where N is of the order of d C (that N over "
            "d C)", 0.1, 10, "an order of magnitude: a factor of ten either way", corrected=True, basis="convention"),
    between("equal", f"{SOURCE}, (32)", "Of the mean, which stays as N grows, both terms are of the order 1/C: the first does not lead (its "
            "squared norm over that of the second)", 0.25, 4, "“O(1/C)” of (32) holds of both: a factor of two in norm either way",
            corrected=True, basis="convention"),
    more("stays", f"{SOURCE}, (33)", "As N grows the share tends to that of the mean, which is not that of a full matrix (share of the mean "
         "times the m columns)", 1, "1/m of a matrix without pattern lies in one of m columns", corrected=True),
)  # fmt: skip
PARTS = ("stripes", "total", "first", "second")


@dataclass(frozen=True)
class Config:
    """Random inputs and labels, as in Figure 3; N in units of d C, `draws` data sets for each, `parts` for the mean."""

    inputs: int = 24
    hidden: int = 6
    classes: int = 24
    shares: tuple[float, ...] = (0.05, 0.5, 5.0, 50.0)
    draws: int = 12
    parts: int = 8
    pixels: int = 160
    seed: int = 0


def run(config: Config) -> Findings:
    """One network; squared norms over data sets of every size, and of the mean from products of independent ones."""
    d, c = config.inputs, config.classes
    rng = Rng(config.seed).child("stripes")
    model = network((d, config.hidden, c), rng.child("network"))
    first, second = (p.detach() for p in model.parameters())
    weights = (first, second)
    counts = np.array([max(4, round(share * d * c)) for share in config.shares])
    noise, mean = _population(config, weights, int(counts[-1]), rng.child("mean"))
    measured, errors, pictures = [], [], []
    for n in counts:
        found = []
        for draw in range(config.draws):
            x, y = _data(int(n), d, c, rng.child("draw", int(n), draw))
            here = cross_terms(x, y, *weights)
            found.append(_products(here, here))
            if not draw:
                picture = heat_map(problem_of(model, "CE", x, y, c), config.pixels)
                pictures.append(picture.image)
        rows = np.array(found)
        measured.append(rows.mean(0))
        errors.append(_share_error(rows))
    expected = mean.mean(0) + (noise - mean.mean(0)) / counts[:, None]
    doubt = [_share_error(mean + (noise - mean) / n) for n in counts]
    squares = np.array(measured)
    share, predicted = squares[:, 0] / squares[:, 1], expected[:, 0] / expected[:, 1]
    quotient, limit = squares[:, 2] / squares[:, 3], mean.mean(0)
    data = {
        "examples": counts, "squares": squares, "share": share, "share_error": np.array(errors), "predicted": predicted,
        "expected": expected, "limit": limit, "noise": noise, "pictures": np.stack(pictures), "bounds": picture.bounds,
    }  # fmt: skip
    scores = np.abs(share - predicted) / np.hypot(errors, doubt)
    return data, {
        "seen": float(share[0]),
        "everywhere": float(share.min()),
        "leads-few": float(quotient[0]),
        "leads": float(quotient.min()),
        "law": float(scores.max()),
        "balance": float((noise[1] / limit[1] - 1) / (d * c)),
        "equal": float(limit[2] / limit[3]),
        "stays": float(limit[0] / limit[1] * config.hidden),
    }


def _data(n: int, inputs: int, classes: int, rng: Rng) -> tuple[Tensor, Tensor]:
    draw = rng.torch()
    return torch.randn(n, inputs, generator=draw), torch.randint(0, classes, (n,), generator=draw)


def cross_terms(x: Tensor, y: Tensor, first: Tensor, second: Tensor, chunk: int = 4096) -> tuple[Tensor, Tensor]:
    """Both terms of (30) for a network x -> second relu(first x): (d, m, C) at [:, i, j], and (d, m, m, C) at [:, :, i, j]."""
    (m, d), c = first.shape, len(second)
    striped, other = torch.zeros(d, m, c), torch.zeros(d * m, m * c)
    for rows, labels in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
        slope, pull, hidden, on = _pieces(rows, labels, first, second)
        striped += (rows.T @ (on[:, :, None] * slope[:, None]).flatten(1)).view(d, m, c)
        other += (rows[:, :, None] * hidden[:, None]).flatten(1).T @ pull.flatten(1)
    return striped / len(x), other.view(d, m, m, c) / len(x)


def cross_map(problem: Problem, classes: int, pixels: int) -> Any:
    """|H_wv| of a problem with hidden weights w and output weights v: rows (i, input), columns (j, k) of the first `classes` j.

    Rows are shrunk by maxima to about `pixels`; columns are kept, since stripes are one column wide.
    """
    x, y = (torch.cat([part[k] for part in problem.batches]) for k in range(2))
    first, second = (p.detach() for p in problem.parameters.values())
    striped, whole = cross_terms(x, y, first, second)
    for i in range(len(first)):
        whole[:, i, i] += striped[:, i]
    picture = whole[..., :classes].permute(2, 0, 3, 1).flatten(2).flatten(0, 1).abs().numpy()
    each = max(1, round(len(picture) / pixels))
    return np.maximum.reduceat(picture, np.arange(0, len(picture), each), 0)


def _pieces(x: Tensor, y: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p - y, the factor 1_i p_j (v_ji - Σ_c p_c v_ci) of the second term, σ(Wx) and 1_i."""
    inner = x @ first.T
    on, hidden = (inner > 0).to(x.dtype), inner.clamp_min(0)
    p = (hidden @ second.T).softmax(1)
    pull = on[:, :, None] * p[:, None] * (second.T - (p @ second)[:, :, None])
    return p - torch.nn.functional.one_hot(y, len(second)).to(x.dtype), pull, hidden, on


def _products(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> list[float]:
    """Inner products of two H_wv: in the striped columns, of all, of the first terms, of the second terms."""
    own = [b.diagonal(dim1=1, dim2=2).transpose(1, 2) for _, b in (one, two)]  # column i of block (i, j)
    stripes = float(((one[0] + own[0]) * (two[0] + own[1])).sum(dtype=torch.float64))
    seconds = float((one[1] * two[1]).sum(dtype=torch.float64))
    rest = seconds - float((own[0] * own[1]).sum(dtype=torch.float64))
    return [stripes, stripes + rest, float((one[0] * two[0]).sum(dtype=torch.float64)), seconds]


def _population(config: Config, weights: tuple[Tensor, Tensor], n: int, rng: Rng) -> tuple[Any, Any]:
    """E‖h‖² of one example, and unbiased ‖E h‖² from `parts` pairs of independent data sets of n examples: (parts, 4)."""
    noise, mean = np.zeros(4), []
    for part in range(config.parts):
        data = [_data(n, config.inputs, config.classes, rng.child(part, k)) for k in range(2)]
        mean.append(_products(cross_terms(*data[0], *weights), cross_terms(*data[1], *weights)))
        noise += _one_example(*data[0], *weights) / config.parts
    return noise, np.array(mean)


def _one_example(x: Tensor, y: Tensor, first: Tensor, second: Tensor, chunk: int = 4096) -> Any:
    total = np.zeros(4)
    for rows, labels in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
        slope, pull, hidden, on = _pieces(rows, labels, first, second)
        size = rows.square().sum(1)
        striped, own = on[:, :, None] * slope[:, None], pull * hidden[:, :, None]
        seconds = pull.square().sum((1, 2)) * hidden.square().sum(1)
        stripes = (striped + own).square().sum((1, 2))
        values = (
            stripes, stripes + seconds - own.square().sum((1, 2)), striped.square().sum((1, 2)), seconds,
        )  # fmt: skip
        total += np.array([float((size * value).sum(dtype=torch.float64)) for value in values])
    return total / len(x)


def _share_error(rows: Any) -> float:
    """Of the quotient of the means of the first two columns, to first order."""
    stripes, total = rows[:, 0], rows[:, 1]
    apart = stripes - stripes.mean() / total.mean() * total
    return float(apart.std(ddof=1) / len(rows) ** 0.5 / total.mean())


def figures(result: Outcome) -> dict[str, Any]:
    """|H| at every N; the share in stripes and both terms of (30) over N/(d C), with noise/N plus mean as lines."""
    data, shares = result.data, np.asarray(result.config["shares"])
    d, c = result.config["inputs"], result.config["classes"]
    pictures, axes = new_figure(1, len(shares), width=3.0, height=3.4)
    titles = [f"N = {n}, N/(dC) = {share:g}" for n, share in zip(data["examples"], shares, strict=True)]
    draw_maps(pictures, axes, data["pictures"], data["bounds"], titles, ("w", "v"))
    pictures.suptitle("|H| under CE at initialisation: H_wv is the block beside the diagonal", fontsize=11)
    figure, (left, right) = new_figure(1, 2, width=4.6, height=3.6)
    fine = np.geomspace(data["examples"][0], data["examples"][-1], 200)
    curve = data["limit"] + (data["noise"] - data["limit"]) / fine[:, None]
    at = fine / (d * c)
    left.errorbar(shares, data["share"], 2 * data["share_error"], fmt="o", color=MEASURED, label="measured ± 2 s.e.")
    left.plot(at, curve[:, 0] / curve[:, 1], color=THEORY, label="noise/N + mean")
    left.axhline(data["limit"][0] / data["limit"][1], color=ACCENT, ls="--", label="mean alone")
    left.axhline(1 / result.config["hidden"], color=MUTED, ls=":", label="no pattern, 1/m")
    left.set(xscale="log", xlabel="N / (d C)", ylabel="share of ‖H_wv‖² in stripes", ylim=(0, 1.05))
    for column, ink, name in ((2, MEASURED, "first term, (32)"), (3, ACCENT, "second term, (31)")):
        right.plot(shares, data["squares"][:, column], "o", color=ink, label=name)
        right.plot(at, curve[:, column], color=ink)
    right.set(xscale="log", yscale="log", xlabel="N / (d C)", ylabel="squared norm of the term of (30)")
    for axis in (left, right):
        axis.axvline(1.0, color=MUTED, lw=0.8, ls=":")
        axis.legend(fontsize=8)
    return {"stripes": pictures, "terms": figure}


EXPERIMENT = experiment(
    __name__,
    "When H_wv is striped: the two terms of (30) and the number of examples against d C",
    "Dong et al. 2025, Finding 2, (30)-(33)",
    quick=Config(),
    default=Config(inputs=64, hidden=8, classes=64, shares=(0.02, 0.1, 1.0, 10.0), pixels=320),
    paper=Config(inputs=500, hidden=8, classes=500, shares=(0.002, 0.02, 0.2), draws=4, parts=4, pixels=500),
    chosen="the numbers of examples; the paper's d, m and C.",
)
