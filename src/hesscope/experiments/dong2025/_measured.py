"""What the measured figures share: the paper's data and networks, and claims in words."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice, pairwise, repeat
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..._version import __version__
from ...curvature import Problem
from ...plots.blocks import draw_heat
from ...rng import Rng
from ...structure import block_norms
from ...zoo.training import descend, drawn_batches
from ..long_runs import Kept, progress
from . import SOURCE as SOURCE

Loss = Literal["MSE", "CE"]


def gaussian_data(per_class: int, classes: int, inputs: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """x ~ N(0, I), labels that have nothing to do with x (Appendix G.3)."""
    x = torch.randn(per_class * classes, inputs, generator=rng.child("inputs").torch())
    return x, torch.arange(classes).repeat_interleave(per_class)


def clustered_data(total: int, classes: int, clusters: int, inputs: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """Clusters of width 0.05 around random points of the unit sphere, shared out among the classes (Appendix G.2)."""
    generator = rng.child("clusters").torch()
    centres = nn.functional.normalize(torch.randn(clusters, inputs, generator=generator), dim=1)
    each = total // clusters
    x = centres.repeat_interleave(each, 0) + 0.05 * torch.randn(clusters * each, inputs, generator=generator)
    y = (torch.arange(clusters) // (clusters // classes)).clamp_max(classes - 1)
    return x, y.repeat_interleave(each)


def network(widths: tuple[int, ...], rng: Rng) -> nn.Sequential:
    """fc1, fc2, ...: a ReLU network without biases at LeCun initialisation: weights ~ N(0, 1/inputs) (Assumption 2)."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for k, (before, after) in enumerate(pairwise(widths), start=1):
        if k > 1:
            layers[f"relu{k - 1}"] = nn.ReLU()
        layer = nn.Linear(before, after, bias=False)
        drawn = torch.randn(after, before, generator=rng.child("layer", k).torch())
        layer.weight.data = drawn / before**0.5
        layers[f"fc{k}"] = layer
    return nn.Sequential(layers)


def problem_of(model: nn.Module, loss: Loss, x: Tensor, y: Tensor, classes: int) -> Problem:
    """The mean over examples of cross-entropy, or of the squared error to one-hot targets."""
    target = y if loss == "CE" else nn.functional.one_hot(y, classes).to(x.dtype)
    return Problem.of(model, "cross_entropy" if loss == "CE" else "squared_error", (x, target), batch_size=8192)


def train(
    problem: Problem,
    steps: int,
    rate: float,
    keep: tuple[float, ...],
    batch: int | None,
    rng: Rng,
    losses: list[float] | None = None,
) -> list[tuple[float, dict[str, Tensor]]]:
    """Adam with a cosine schedule to zero; (step, parameters) at the shares `keep` of the steps.

    The loss of every batch is added to `losses`. A run that was killed goes on where it was.
    """
    model = copy.deepcopy(problem.model)
    data = list(problem.batches)
    x, y = (torch.cat([part[k] for part in data]) for k in range(2))
    cross_entropy = not y.is_floating_point()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    marks = {round(share * steps) for share in keep}
    losses = [] if losses is None else losses
    kept: list[tuple[float, dict[str, Tensor]]] = []
    content = b"".join(t.detach().contiguous().numpy().tobytes() for t in (x, y, *model.parameters()))
    done, begun = Kept(repr((sha256(content).hexdigest(), steps, rate, keep, batch, rng, __version__))), 0
    if (state := done.load()) is not None:
        begun, kept = state["step"], list(state["kept"])
        losses.extend(state["losses"].tolist())
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])

    def watch(after: int) -> None:
        step = begun + after
        if step in marks and step not in {at for at, _ in kept}:
            kept.append((float(step), {name: p.detach().clone() for name, p in model.named_parameters()}))
        if after and (step % max(1, steps // 20) == 0 or step == steps):
            parts = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
            }
            done.save({"step": step, "kept": kept, "losses": torch.tensor(losses, dtype=torch.float64), **parts})
            progress(f"training: step {step} of {steps}")

    def loss(chosen: Tensor | slice) -> Tensor:
        outputs: Tensor = model(x[chosen])
        if cross_entropy:
            value = nn.functional.cross_entropy(outputs, y[chosen])
        else:
            value = (outputs - y[chosen]).square().sum(-1).mean()
        losses.append(float(value.detach()))
        return value

    batches: Iterable[Tensor | slice] = repeat(slice(None), steps)
    if batch is not None:
        batches = drawn_batches(len(x), batch, steps, rng.child("batches").torch())
    descend(optimizer, islice(batches, begun, None), loss, schedule=schedule, watch=watch)
    return kept


def mean_squares(norms: Any) -> Any:
    """The mean squares of diagonal and of off-diagonal norms."""
    off = ~np.eye(len(norms), dtype=bool)
    return np.array([np.mean(np.diagonal(norms) ** 2), np.mean(norms[off] ** 2)])


def layer_squares(problem: Problem, layers: Sequence[str]) -> Any:
    """`mean_squares` between the neurons of each layer, from one matrix of norms."""
    found = block_norms(problem)
    return np.array([mean_squares(within(found.norms, found.layers, layer)) for layer in layers])


def draw_maps(figure: Any, axes: Any, pictures: Any, bounds: Any, titles: Sequence[str], names: Sequence[str]) -> None:
    """|H| in several panels, each relative to its own 99.9 % quantile, and one colour bar for all."""
    panels = list(np.atleast_1d(axes).flat)
    for axis, picture, title in zip(panels, pictures, titles, strict=True):
        drawn = draw_map(axis, picture, bounds, title, names)
    map_bar(figure, panels, drawn)


def draw_map(axis: Any, picture: Any, bounds: Any = (), title: str = "", names: Sequence[str] = ()) -> Any:
    """|H| relative to its own 99.9 % quantile, so that one colour bar serves several."""
    largest = float(np.quantile(picture, 0.999)) or 1.0
    return draw_heat(axis, np.asarray(picture) / largest, bounds, title, names, top=1.0)


def map_bar(figure: Any, axes: Any, drawn: Any) -> None:
    """The colour bar of such maps."""
    panels = list(np.atleast_1d(axes).flat)
    bar = figure.colorbar(drawn, ax=panels, shrink=0.7, pad=0.01, extend="max")
    bar.set_label("√(|H| / its 99.9 % quantile)", fontsize=8)


NEAR = "“near-block-diagonal”: the diagonal blocks hold more of the squared norm than all others together"


def diagonal_share(norms: Any) -> float:
    """The part of the squared norm that lies in diagonal blocks."""
    squares = np.asarray(norms) ** 2
    return float(np.trace(squares) / squares.sum())


def within(norms: Any, layers: Sequence[str], layer: str) -> Any:
    """The norms between blocks of one layer."""
    same = np.array([name == layer for name in layers])
    return np.asarray(norms)[np.ix_(same, same)]
