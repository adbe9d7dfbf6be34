"""Figures 5 and 23 to 25: the top Gauss-Newton eigenvalue for the top Hessian one while a GPT is pre-trained, and its twin."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...curvature import GaussNewton, Hessian, Problem
from ...linalg import eigenpairs
from ...plots.style import MEASURED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...zoo.models import initialised_by
from ...zoo.pieces import Pieces
from ...zoo.presets import shakespeare
from ...zoo.pretraining import NanoGPT, Pretraining, windows
from ..declared import at_least, at_most, less
from ..long_runs import progress
from ..recipe import Findings, experiment
from . import PAPER

ALMOST = "“for almost all values”: nine of ten"
CLAIMS = (
    at_least("residual", f"{PAPER}, Figure 5", "At equal mean norm of the residual, attention makes λ_max(G) a less accurate λ_max(H) "
             "(share of the values that both networks pass, first shape)", 0.9, ALMOST, basis="convention"),
    at_least("loss", f"{PAPER}, Figures 23, 24", "... and at equal loss (share of the values)", 0.9, ALMOST, basis="convention"),
    at_least("decided", f"{PAPER}, Figure 5", "... by more than chance (mean difference of the errors over the residuals in its standard "
             "errors over runs)", 4.3, "Student's t, two-sided 95 % at three runs", basis="sampling theory"),
    at_most("start", f"{PAPER}, Section 4.3", "... except at initialisation, where attention is not the less accurate (error with over "
            "without)", 1, "“except at the initialization”"),
    less("falls", f"{PAPER}, Section 4.3", "The error falls as training drives the residual down (last over largest, the larger of both "
         "networks)", 1, "the residual “drives the difference between Hessian and GGN to zero during training”"),
    at_least("shapes", f"beyond {PAPER}, Figure 5", "The order is the same at every width and depth (share of the shapes at which attention "
             "is the less accurate at most residuals)", 1, "the paper's hypothesis names no size"),
    at_most("converged", "method", "Eigenvalues are known well enough (largest residual of an eigenpair relative to it)", 0.01,
            "a hundredth of the eigenvalue, below the width of the curves", basis="sampling theory"),
)  # fmt: skip
KINDS = ("attention", "without")


@dataclass(frozen=True)
class Config:
    """Shapes (every width with every depth), text and pieces, the run of training, readings, and sequences for the curvature."""

    widths: tuple[int, ...] = (8,)
    depths: tuple[int, ...] = (1,)
    heads: int = 2
    vocabulary: int = 65
    characters: int = 100_000
    length: int = 12
    steps: int = 100
    batch: int = 8
    rate: float = 1e-2
    rising: int = 10
    readings: int = 4
    sequences: int = 4
    runs: int = 3
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
    """Both networks at every shape, each at several seeds; eigenvalues of one checkpoint start from those of the last."""
    tokens, vocabulary = _tokens(config)
    shapes: dict[str, Any] = {}
    for width, depth in product(config.widths, config.depths):
        found: dict[str, Any] = {}
        for kind, number in product(KINDS, range(config.runs)):
            progress(f"width {width}, depth {depth}, {kind}, run {number + 1} of {config.runs}")
            rng = Rng(config.seed).child("fig5", width, depth, number)
            found.setdefault(kind, []).append(_course(config, tokens, vocabulary, (width, depth, kind), rng))
        shapes[f"width {width}, depth {depth}"] = {
            kind: {name: np.array([one[name] for one in found[kind]]) for name in found[kind][0]} for kind in KINDS
        }
    for shape in shapes.values():
        shape["against"] = {name: _compared(shape, name) for name in ("residual", "loss")}
    return {"shapes": shapes, "steps": np.array(_marks(config))}, _measured(shapes)


def _tokens(config: Config) -> tuple[Tensor, int]:
    text, _ = shakespeare(config.data_dir, config.characters)
    pieces = Pieces.learn(text, max(config.vocabulary, len(set(text))))
    return torch.tensor(pieces.encode(text)), len(pieces.vocabulary)


def _marks(config: Config) -> tuple[int, ...]:
    later = np.geomspace(max(1, config.steps / 30), config.steps, config.readings - 1)
    return (0, *dict.fromkeys(round(float(step)) for step in later))


def _course(
    config: Config, tokens: Tensor, vocabulary: int, shape: tuple[int, int, str], rng: Rng
) -> dict[str, list[float]]:
    width, depth, kind = shape
    with initialised_by(rng.child("model")):
        model = NanoGPT(vocabulary, width, config.heads, depth, config.length, attention=kind == "attention")
    # The same sequences for both networks and all checkpoints, so that curves differ by the network alone.
    starts = torch.randint(0, len(tokens) - config.length, (config.sequences,), generator=rng.child("read").torch())
    x, y = windows(tokens, starts, config.length)
    first = Problem.of(model, "cross_entropy", (x, y))
    marks = set(_marks(config))
    found: dict[str, list[float]] = {
        key: [] for key in ("loss", "residual", "hessian", "gauss_newton", "bound", "parameters")
    }
    last: dict[str, Tensor | None] = {"hessian": None, "gauss_newton": None}

    def watch(step: int) -> None:
        if step not in marks:
            return
        here = first.at({name: p.detach().clone() for name, p in model.named_parameters()})
        bounds = []
        for name, operator in (("hessian", Hessian(here)), ("gauss_newton", GaussNewton(here))):
            top = eigenpairs(operator, 1, tol=5e-3, start=last[name], rng=rng.child("top", name))
            last[name] = top.vectors
            found[name].append(float(top.values[0]))
            bounds.append(float(top.residuals[0] / abs(top.values[0])))
        with torch.no_grad():
            chances = model(x).softmax(-1)
        miss = chances - torch.nn.functional.one_hot(y, vocabulary)
        found["residual"].append(float(miss.norm(dim=-1).mean()))
        found["loss"].append(here.loss_value())
        found["bound"].append(max(bounds))
        found["parameters"].append(float(first.space.size))

    Pretraining(config.steps, config.batch, config.rate, config.rising).run(
        model, tokens, config.length, watch, rng.child("batches")
    )
    return found


def relative_error(part: dict[str, Any]) -> Any:
    """|λ_max(H) - λ_max(G)| / λ_max(H), by run and checkpoint."""
    return np.abs(part["hessian"] - part["gauss_newton"]) / np.abs(part["hessian"])


def _compared(shape: dict[str, Any], name: str, points: int = 25) -> dict[str, Any]:
    """Errors of every run on a grid of `name` that all runs pass after initialisation, by interpolation as in D.1.5."""
    passed = [shape[kind][name][:, 1:] for kind in KINDS]
    low, high = (max(p.min(1).max() for p in passed), min(p.max(1).min() for p in passed))
    if not low < high:
        return {"grid": np.zeros(0), **{kind: np.zeros((len(passed[0]), 0)) for kind in KINDS}}
    grid = np.linspace(low, high, points)
    lines = {}
    for kind in KINDS:
        where, errors = shape[kind][name][:, 1:], relative_error(shape[kind])[:, 1:]
        order = np.argsort(where, 1)
        pairs = zip(np.take_along_axis(where, order, 1), np.take_along_axis(errors, order, 1), strict=True)
        lines[kind] = np.array([np.interp(grid, at, error) for at, error in pairs])
    return {"grid": grid, **lines}


def _share(against: dict[str, Any]) -> float | str:
    """Of the grid, where the mean over runs is larger with attention."""
    if not against["grid"].size:
        return "the networks pass no common value"
    return float(np.mean(against["attention"].mean(0) > against["without"].mean(0)))


def _measured(shapes: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(shapes.values()))
    apart = first["against"]["residual"]["attention"] - first["against"]["residual"]["without"]
    runs = apart.mean(1) if apart.size else np.zeros(0)
    errors = {kind: relative_error(first[kind]).mean(0) for kind in KINDS}
    shares = [_share(shape["against"]["residual"]) for shape in shapes.values()]
    measured: dict[str, Any] = {
        "residual": _share(first["against"]["residual"]),
        "loss": _share(first["against"]["loss"]),
        "decided": float(runs.mean() / (runs.std(ddof=1) / len(runs) ** 0.5)) if len(runs) > 1 else "no common values",
        "start": float(errors["attention"][0] / max(errors["without"][0], 1e-30)),
        "falls": max(float(e[-1] / e.max()) for e in errors.values()),
        "converged": max(float(s[kind]["bound"].max()) for s in shapes.values() for kind in KINDS),
    }
    if len(shapes) > 1:
        measured["shapes"] = float(np.mean([isinstance(share, float) and share > 0.5 for share in shares]))
    return measured


def figures(result: Outcome) -> dict[str, Any]:
    """By shape: error against residual and against loss (bands: standard errors over runs), and both along training."""
    shapes, steps = result.data["shapes"], result.data["steps"]
    figure, axes = new_figure(len(shapes), 4, width=3.6, height=2.9, squeeze=False)
    for row, (name, shape) in zip(axes, shapes.items(), strict=True):
        for kind, ink in zip(KINDS, (MEASURED, THEORY), strict=True):
            label = "with attention" if kind == "attention" else "without attention"
            for axis, at in zip(row, ("residual", "loss"), strict=False):
                _band(axis, shape["against"][at]["grid"], shape["against"][at][kind], ink, label)
            _band(row[2], steps, shape[kind]["loss"], ink, label)
            _band(row[3], steps, relative_error(shape[kind]), ink, label)
        row[0].set(xlabel="mean norm of the residual", ylabel="relative error of λ_max(G)", title=name, yscale="log")
        row[1].set(xlabel="loss", yscale="log")
        row[2].set(xlabel="step", ylabel="loss", xscale="symlog")
        row[3].set(xlabel="step", ylabel="relative error", xscale="symlog", yscale="log")
        for axis in row[2:]:
            axis.set_xlim(left=-0.3)
        row[0].legend(fontsize=8)
    return {"fig5": figure}


def _band(axis: Any, at: Any, lines: Any, ink: str, label: str) -> None:
    mean, error = lines.mean(0), lines.std(0, ddof=1) / len(lines) ** 0.5
    axis.plot(at, mean, color=ink, lw=1.4, label=label)
    axis.fill_between(at, mean - error, mean + error, color=ink, alpha=0.2, lw=0)


EXPERIMENT = experiment(
    __name__,
    "Gauss-Newton's top eigenvalue for the Hessian's, with and without attention",
    "Cracking the Hessian, Figures 5, 23, 24, 25",
    quick=Config(),
    default=Config((16, 32), (1, 3), 2, 65, 1_200_000, 32, 400, 16, 1e-2, 20, 7, 8),
    paper=Config((768,), (12,), 12, 8192, 1_200_000, 1024, 10_000, 480, 6e-4, 2000, 40, 8),
    chosen="tiny Shakespeare and 8,192 pieces learnt from it for OpenWebText and GPT-2's; the same 8 sequences at every checkpoint; no "
    "clipping of gradients; the twin has one narrower feed-forward block of as many parameters in the place of each attention layer, not six wide ones.",
)
