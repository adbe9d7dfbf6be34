"""Beyond the paper: the head of a GPT trained on real text, along training, and the 1/C law over vocabularies of one text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...curvature import Problem
from ...plots.style import CYCLE, MUTED, THEORY, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import output_block_norms
from ...zoo.gpt import SmallGPT
from ...zoo.models import initialised_by
from ...zoo.pieces import Pieces
from ...zoo.presets import shakespeare
from ...zoo.pretraining import Pretraining, windows
from ..declared import at_most, between, less, more
from ..long_runs import progress
from ..recipe import Findings, experiment
from ._measured import NEAR, SOURCE

RATE = "“the ratio between the off-diagonal and diagonal blocks decays to zero at the rate of O(1/C)”: an exponent of -1, to a tenth"
CLAIMS = (
    less("learns", "method", "Every network learns (last over first loss, largest)", 1, "otherwise nothing was trained"),
    between("law-random", f"{SOURCE}, Theorem 1 and (29)", "Random weights: RMS off-diagonal over diagonal norm falls as 1/C (exponent over "
            "the vocabularies of one text)", -1.1, -0.9, RATE, printed=-1.0, basis="convention"),
    between("far", f"{SOURCE}, (29)", "... and the same law reaches 50,257 random tokens (measured over extrapolated ratio)", 0.8, 1.25,
            "one law: a fifth either way", basis="convention"),
    between("order", f"{SOURCE}, (29)", "... with the constant of the rough count (ratio times C - 1, at the most tokens)", 0.5, 2,
            "“≈ 1/(C - 1)”: within a factor of two", printed=1.0, basis="convention"),
    between("law-trained", f"beyond {SOURCE}, Theorem 1", "Trained weights: the same exponent", -1.1, -0.9, RATE, printed=-1.0,
            basis="convention"),
    between("law-typical", f"beyond {SOURCE}, Theorem 1", "Trained weights, the median token's ratio: the same exponent", -1.1, -0.9, RATE,
            printed=-1.0, basis="convention"),
    between("frequencies", f"beyond {SOURCE}, (29)", "... instead the ratio of a head that says every token's frequency, f: in (29) with p = f "
            "(trained over that, farthest from 1 of the vocabularies)", 0.8, 1.25, "one law: a fifth either way", corrected=True, basis="convention"),
    less("falls", f"beyond {SOURCE}, Theorem 1", "Trained weights: the ratio falls with the vocabulary (exponent)", 0,
         "“the block-diagonal structure becomes clearer as C increases”"),
    more("near", f"beyond {SOURCE}, Theorem 1", "Trained: the head is near-block-diagonal by token at every vocabulary (smallest share of its "
         "squared norm in diagonal blocks)", 0.5, NEAR, basis="convention"),
    more("course", f"beyond {SOURCE}, Figure 3", "... all along training (smallest share at any checkpoint)", 0.5, NEAR, basis="convention"),
    at_most("scatter", "method", "Runs decide the exponents (largest standard error of one over runs)", 0.05,
            "half of the tenth that is allowed", basis="sampling theory"),
)  # fmt: skip
FAR = 50_257


@dataclass(frozen=True)
class Config:
    """Vocabularies learnt from one text, the network, its training, and the text on which the head is measured."""

    vocabularies: tuple[int, ...] = (64, 256)
    characters: int = 30_000
    width: int = 16
    heads: int = 2
    layers: int = 1
    length: int = 16
    steps: int = 60
    batch: int = 8
    rate: float = 1e-2
    readings: int = 3
    sequences: int = 8
    far: int = 2048
    runs: int = 3
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
    """Exact norms of the head at every vocabulary, run and checkpoint; one more network at random for many tokens."""
    text = plain_text(shakespeare(config.data_dir, config.characters)[0], min(config.vocabularies))
    marks = (0, *(round(float(s)) for s in np.geomspace(max(1, config.steps / 20), config.steps, config.readings - 1)))
    data: dict[str, Any] = {"steps": np.array(marks), "vocabularies": np.array(config.vocabularies)}
    found: dict[str, list[Any]] = {}
    for size in config.vocabularies:
        tokens = torch.tensor(Pieces.learn(text, size).encode(text))
        found.setdefault("by_frequency", []).append(_by_frequency(tokens, size))
        courses = []
        for number in range(config.runs):
            progress(f"{size} tokens, run {number + 1} of {config.runs}")
            courses.append(_course(config, tokens, size, marks, Rng(config.seed).child("language", size, number)))
        for name in courses[0]:
            found.setdefault(name, []).append([course[name] for course in courses])
    data |= {name: np.array(values) for name, values in found.items()}  # (vocabulary, run, checkpoint)
    progress(f"{config.far} random tokens")
    data["far"], data["far_tokens"] = np.array([_far(config, number) for number in range(config.runs)]), config.far
    return data, _measured(data)


def plain_text(text: str, most: int) -> str:
    """The text with its rarest characters as spaces, so that the others are at most `most`."""
    kept = {letter for letter, _ in Counter(text).most_common(most)}
    return "".join(letter if letter in kept else " " for letter in text)


def _model(config: Config, vocabulary: int, rng: Rng) -> SmallGPT:
    with initialised_by(rng.child("model")):
        return SmallGPT(vocabulary, config.width, config.heads, config.layers, config.length)


def _course(
    config: Config, tokens: Tensor, vocabulary: int, marks: tuple[int, ...], rng: Rng
) -> dict[str, list[float]]:
    model = _model(config, vocabulary, rng)
    starts = torch.randint(0, len(tokens) - config.length, (config.sequences,), generator=rng.child("read").torch())
    first = Problem.of(model, "cross_entropy", windows(tokens, starts, config.length))
    found: dict[str, list[float]] = {name: [] for name in ("loss", "ratio", "typical", "share", "spread")}

    def watch(step: int) -> None:
        if step in marks:
            here = first.at({name: p.detach().clone() for name, p in model.named_parameters()})
            for name, value in _head(here).items():
                found[name].append(value)

    Pretraining(config.steps, config.batch, config.rate, 1 + config.steps // 20).run(
        model, tokens, config.length, watch, rng.child("batches")
    )
    return found


def _by_frequency(tokens: Tensor, vocabulary: int) -> float:
    """RMS f_i f_j over RMS f_i (1 - f_i): blocks are these numbers times one matrix if p = f for every input."""
    f = np.bincount(tokens.numpy(), minlength=vocabulary) / len(tokens)
    pairs = (f @ f) ** 2 - (f**4).sum()
    return float(np.sqrt(pairs / (vocabulary - 1) / (f**2 * (1 - f) ** 2).sum()))


def _head(problem: Problem) -> dict[str, float]:
    norms = output_block_norms(problem, "head")
    return {
        "loss": problem.loss_value(),
        "ratio": norms.ratio,
        "typical": float(np.median(norms.off_diagonal / norms.diagonal)),
        "share": norms.diagonal_share,
        "spread": float(norms.diagonal.max() / np.median(norms.diagonal)),
    }


def _far(config: Config, number: int) -> float:
    """A vocabulary that no text here could fill: random weights on random tokens."""
    rng = Rng(config.seed).child("far", number)
    tokens = torch.randint(0, config.far, (config.sequences, config.length + 1), generator=rng.child("text").torch())
    model = _model(config, config.far, rng)
    return _head(Problem.of(model, "cross_entropy", (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())))["ratio"]


def _exponents(sizes: Any, values: Any) -> tuple[Any, Any]:
    """Least squares of log value against log C for every run: exponents and constants."""
    at = np.log(sizes)
    slope, constant = np.polyfit(at, np.log(values), 1)
    return slope, constant


def _measured(data: dict[str, Any]) -> dict[str, Any]:
    sizes, far = data["vocabularies"], data["far_tokens"]
    fresh, line = _exponents(sizes, data["ratio"][:, :, 0])
    trained, _ = _exponents(sizes, data["ratio"][:, :, -1])
    typical, _ = _exponents(sizes, data["typical"][:, :, -1])
    runs = len(fresh)
    errors = [float(e.std(ddof=1) / runs**0.5) for e in (fresh, trained, typical)]
    against = data["ratio"][:, :, -1].mean(1) / data["by_frequency"]
    expected = np.exp(line.mean() + fresh.mean() * np.log(far))
    return {
        "learns": float((data["loss"][..., -1] / data["loss"][..., 0]).max()),
        "law-random": (float(fresh.mean()), f"{fresh.mean():.3f} ± {errors[0]:.3f}"),
        "far": float(data["far"].mean() / expected),
        "order": float(data["far"].mean() * (far - 1)),
        "law-trained": (float(trained.mean()), f"{trained.mean():.3f} ± {errors[1]:.3f}"),
        "law-typical": (float(typical.mean()), f"{typical.mean():.3f} ± {errors[2]:.3f}"),
        "frequencies": float(against[np.argmax(np.abs(np.log(against)))]),
        "falls": float(trained.mean()),
        "near": float(data["share"][..., -1].mean(1).min()),
        "course": float(data["share"].mean(1).min()),
        "scatter": max(errors),
    }


def figures(result: Outcome) -> dict[str, Any]:
    """The ratio against the vocabulary, and ratio and share along training (bars: standard errors over runs)."""
    data = result.data
    sizes, steps, far = data["vocabularies"], data["steps"], data["far_tokens"]
    figure, (left, middle, right) = new_figure(1, 3, width=4.0, height=3.4)
    lines = (
        ("random weights", data["ratio"][..., 0]),
        ("trained", data["ratio"][..., -1]),
        ("trained, median token", data["typical"][..., -1]),
    )
    for (label, values), ink in zip(lines, CYCLE, strict=False):
        left.errorbar(sizes, values.mean(1), _error(values), fmt=".-", color=ink, capsize=2, lw=1.2, label=label)
    left.errorbar(
        [far], [data["far"].mean()], data["far"].std() or None, fmt="*", color=CYCLE[0], ms=9, label="random tokens"
    )
    left.plot(sizes, data["by_frequency"], "--", color=THEORY, lw=1.2, label="from token frequencies")
    reach = np.array([sizes.min(), far])
    left.plot(reach, 1 / (reach - 1), ":", color=THEORY, lw=1, label="1/(C - 1)")
    left.set(
        xscale="log",
        yscale="log",
        xlabel="vocabulary C",
        ylabel="off-diagonal / diagonal norm",
        title="the head's blocks",
    )
    left.legend(fontsize=7)
    shades = np.linspace(0.25, 1, len(sizes))
    for size, shade, ratio, share in zip(sizes, shades, data["ratio"], data["share"], strict=True):
        for axis, values, scaled in ((middle, ratio, size - 1), (right, share, 1.0)):
            mean, error = values.mean(0) * scaled, _error(values.T) * scaled
            axis.errorbar(
                steps, mean, error, fmt=".-", color=CYCLE[0], alpha=shade, lw=1.2, capsize=2, label=f"C = {size}"
            )
    middle.axhline(1, color=MUTED, lw=0.8, ls=":")
    middle.set(xscale="symlog", yscale="log", xlabel="step", ylabel="ratio times (C - 1)", title="along training")
    right.set(
        xscale="symlog",
        xlabel="step",
        ylabel="share of ‖H‖² in diagonal blocks",
        ylim=(0, 1.02),
        title="along training",
    )
    right.legend(fontsize=7)
    for axis in (middle, right):
        axis.set_xlim(left=-0.3)
    return {"language_model": figure}


def _error(values: Any) -> Any:
    """Of the mean over the second axis."""
    return values.std(1, ddof=1) / values.shape[1] ** 0.5


EXPERIMENT = experiment(
    __name__,
    "The language-model head on real text: along training, and the 1/C law",
    "beyond Dong et al. 2025",
    quick=Config(),
    default=Config((64, 256, 1024, 4096, 8192), 400_000, 32, 4, 2, 32, 120, 8, 1e-2, 4, 12, FAR),
    paper=Config((64, 128, 256, 512, 1024, 2048, 4096, 8192), 1_200_000, 128, 4, 4, 64, 2000, 32, 3e-3, 8, 32, FAR),
    chosen="everything: the paper trains no language model. Vocabularies are byte pairs learnt from tiny Shakespeare.",
)
