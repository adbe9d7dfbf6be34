"""`hesscope theory`: numbers and figures from theory alone; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from ...arguments import need_count
from ...errors import refuse
from ...measure import Array
from ..output import CommandOutput
from ..progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...closed_form import ClosedFormSpectrum
    from ...rmt.blocks.limits import BlockLimit


@dataclass(frozen=True)
class TheoryBlocks:
    """Limits of ||block||² at initialisation: how fast the Hessian turns block-diagonal with the number of classes."""

    case: Literal["linear-ce", "hidden-ce", "hidden-mse", "output-ce"] = "linear-ce"
    """Layer and loss."""
    classes: tuple[int, ...] = (2, 10, 100, 1000)
    """Numbers of classes."""
    hidden: int = 8
    """Hidden units, where there are any."""
    ratio: float = 1.0
    """Input dimension over examples, d/N."""

    def answer(self, out: Path) -> CommandOutput:
        from ...plots.export import save_figures
        from ...plots.style import THEORY, new_figure
        from ...rmt import block_limits

        limits: dict[str, Callable[[int], BlockLimit]] = {
            "linear-ce": lambda c: block_limits.linear_cross_entropy(self.ratio, c),
            "hidden-ce": lambda c: block_limits.hidden_cross_entropy(self.ratio, c, self.hidden),
            "hidden-mse": lambda c: block_limits.hidden_mse(self.ratio, c, self.hidden),
            "output-ce": lambda c: block_limits.output_cross_entropy(c, self.hidden),
        }
        if not self.classes:
            refuse("classes must be given", "none", "Try --classes 2 10 100.")
        found = [limits[self.case](c) for c in self.classes]
        head = f"{'classes':>8}{'diagonal':>14}{'off-diagonal':>14}{'ratio':>12}"
        rows = [
            f"{c:>8}{one.diagonal[0]:>14.5g}{one.off_diagonal[0]:>14.5g}{one.ratio[0]:>12.4g}"
            for c, one in zip(self.classes, found, strict=True)
        ]
        figure, axis = new_figure()
        axis.loglog(self.classes, [one.ratio[0] for one in found], "o-", color=THEORY)
        axis.set_xlabel("classes C")
        axis.set_ylabel("‖off-diagonal‖² / ‖diagonal‖²")
        axis.set_title(f"{self.case}, d/N = {self.ratio:g}")
        data = {"case": self.case, "classes": self.classes, "limits": found, "ratio": [one.ratio for one in found]}
        return CommandOutput([head, *rows], data, True, save_figures({f"theory-blocks-{self.case}": figure}, out))


@dataclass(frozen=True)
class TheoryGlm:
    """Limiting spectrum and spikes of a generalised linear model's Hessian."""

    loss: Literal["logistic", "exponential", "square", "phase_retrieval"] = "logistic"
    """Which loss."""
    ratio: float = 0.25
    """Dimension over examples, p/n."""
    w: float = 1.0
    """Length of the weights."""
    w_star: float = 1.0
    """Length of the true weights."""
    angle: float = 0.0
    """Angle between the two, in degrees."""
    mean: float = 0.0
    """Length of the mean of the inputs, orthogonal to both."""

    def answer(self, out: Path) -> CommandOutput:
        from ...plots.export import save_figures
        from ...plots.style import THEORY, new_figure
        from ...rmt import GLM

        turn = np.deg2rad(self.angle)
        response = "phase_retrieval" if self.loss == "phase_retrieval" else "logistic"
        model = GLM(
            loss=self.loss,
            response=response,
            w=[self.w * np.cos(turn), self.w * np.sin(turn), 0.0],
            w_star=[self.w_star, 0.0, 0.0],
            mean=[0.0, 0.0, self.mean],
            ratio=self.ratio,
        )
        law, spikes = model.law(), model.spikes()
        support = ", ".join(f"[{left:.6g}, {right:.6g}]" for left, right in law.support)
        lines = [f"support {support}; mean {law.mean:.6g}; mass at zero {law.mass_at_zero:.4g}"]
        lines += [
            f"spike at {s.location:.6g} ({s.side}); squared cosines: mean {s.alignment.mean:.3f}, "
            f"w* {s.alignment.w_star:.3f}, w {s.alignment.w:.3f}"
            for s in spikes
        ]
        low, high = (float(q) for q in law.quantile([0.001, 0.995]))
        x = np.linspace(low - 0.05 * (high - low), high + 0.1 * (high - low), 400)
        figure, axis = new_figure()
        axis.plot(x, law.density(x), color=THEORY, label="limit law")
        for spike in spikes:
            axis.axvline(spike.location, color=THEORY, linestyle="--", linewidth=1)
        axis.set_xlabel("eigenvalue")
        axis.set_ylabel("density")
        axis.set_title(f"{self.loss}, p/n = {self.ratio:g}")
        data = {"support": law.support, "spikes": spikes, "mean": law.mean, "mass_at_zero": law.mass_at_zero}
        return CommandOutput(lines, data, True, save_figures({f"theory-glm-{self.loss}": figure}, out))


@dataclass(frozen=True)
class TheoryLinear:
    """Exact spectrum of a two-layer linear network f(x) = v·w x, drawn at random."""

    width: int = 100
    """Hidden width."""
    examples: int = 50
    """Data points."""
    seed: int = 0
    """Seed of weights and data."""

    def answer(self, out: Path) -> CommandOutput:
        from ...closed_form import linear_network

        return _closed_form("linear", linear_network(*_scalar_network(self.width, self.examples, self.seed)), out)


@dataclass(frozen=True)
class TheoryRelu(TheoryLinear):
    """Exact spectrum of a two-layer ReLU network of one input, drawn at random."""

    def answer(self, out: Path) -> CommandOutput:
        from ...closed_form import relu_network

        return _closed_form("relu", relu_network(*_scalar_network(self.width, self.examples, self.seed)), out)


@dataclass(frozen=True)
class TheoryAttention:
    """Exact spectrum of one softmax attention head of embedding dimension one, drawn at random."""

    head_size: int = 32
    """Dimension of queries and keys."""
    length: int = 16
    """Tokens per sequence."""
    sequences: int = 8
    """Sequences."""
    seed: int = 0
    """Seed of weights and data."""

    def answer(self, out: Path) -> CommandOutput:
        from ...closed_form import self_attention
        from ...rng import Rng

        for name in ("head_size", "length", "sequences"):
            need_count(name, getattr(self, name))
        draw = Rng(self.seed).child("attention").numpy()
        scale = self.head_size**-0.25
        queries, keys = scale * draw.standard_normal((2, self.head_size))
        x, y = draw.standard_normal((2, self.sequences, self.length))
        return _closed_form("attention", self_attention(1.0, queries, keys, x, y), out)


Choice = (
    Annotated[TheoryBlocks, tyro.conf.subcommand("blocks")]
    | Annotated[TheoryGlm, tyro.conf.subcommand("glm")]
    | Annotated[TheoryLinear, tyro.conf.subcommand("linear")]
    | Annotated[TheoryRelu, tyro.conf.subcommand("relu")]
    | Annotated[TheoryAttention, tyro.conf.subcommand("attention")]
)


@dataclass(frozen=True)
class Theory:
    """Numbers and figures from theory alone."""

    what: Choice
    out: Path = Path("hesscope-out")
    """Folder for the figure."""
    json: bool = False
    """Print JSON for machines."""

    def run(self, bars: ProgressBar) -> CommandOutput:
        bars.stage("theory")
        return self.what.answer(self.out)


def _scalar_network(width: int, examples: int, seed: int) -> tuple[Array, Array, Array, Array]:
    from ...rng import Rng

    need_count("width", width)
    need_count("examples", examples)
    draw = Rng(seed).child("scalar-network").numpy()
    w, v = draw.standard_normal((2, width)) / np.sqrt(width)
    x = draw.standard_normal(examples)
    return w, v, x, 2.0 * x + 0.1 * draw.standard_normal(examples)


def _closed_form(name: str, spectrum: ClosedFormSpectrum, out: Path) -> CommandOutput:
    from ...plots.export import save_figures
    from ...plots.style import MUTED, THEORY, new_figure

    figure, axis = new_figure()
    for bulk in spectrum.bulk:
        axis.vlines(bulk.value, 0.8, max(bulk.multiplicity, 1), color=MUTED, linewidth=3)
    axis.plot(spectrum.outliers, np.ones(spectrum.outliers.size), "D", color=THEORY, label="outliers")
    axis.set_yscale("log")
    axis.set_xlabel("eigenvalue")
    axis.set_ylabel("multiplicity")
    axis.legend(frameon=False)
    data = {"size": spectrum.size, "bulk": spectrum.bulk, "outliers": spectrum.outliers, "trace": spectrum.trace}
    files = save_figures({f"theory-{name}": figure}, out)
    return CommandOutput(spectrum.explain().split("\n"), data | {"sharpness": spectrum.sharpness}, True, files)
