"""Beyond the paper: a trained transformer by head, by neuron and by token, against the same one at random weights."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...curvature import Problem
from ...partition import Partition
from ...plots.blocks import draw_norms, layer_bars
from ...plots.style import CYCLE, new_figure
from ...results.claims import Outcome
from ...rng import Rng
from ...structure import BlockNorms, block_norms, output_block_norms
from ..declared import at_most, less, more
from ..recipe import Findings, experiment
from ._measured import NEAR, SOURCE
from ._stories import language

CLAIMS = (
    less("trained", f"beyond {SOURCE}", "The network is trained (its loss over that of random weights)", 1, "better than at random"),
    *(
        more(f"tokens-{name}", f"beyond {SOURCE}, Theorem 1", f"Language-model head, {name} weights: near-block-diagonal by token (share "
             "of its squared norm in diagonal blocks)", 0.5, NEAR, basis="convention")
        for name in ("random", "trained")
    ),
    less("neurons", f"beyond {SOURCE}, Appendix H", "Feed-forward neurons, trained: off-diagonal blocks are smaller than diagonal ones "
         "(mean ratio)", 1, "“smaller”"),
    less("heads", f"beyond {SOURCE}", "By head, queries and keys are closer to block-diagonal than values and the output projection "
         "(trained; the larger ratio of the first two minus the smaller of the others)", 0, "“closer”"),
    at_most("errors", "method", "The estimates by head decide that (largest standard error of a ratio over the distance of the two "
            "groups)", 0.25, "4 standard errors fit between them", basis="sampling theory"),
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Which layer to look at (counted from the end), on how much text, with how many probes per block."""

    sequences: int = 4
    length: int = 32
    layer: int = -1
    head_probes: int = 8
    neurons: int = 12
    neuron_probes: int = 4
    seed: int = 0
    data_dir: str | None = None


def run(config: Config) -> Findings:
    """Stochastic norms by head and neuron with standard errors, exact norms of the language-model head."""
    rng = Rng(config.seed).child("transformer")
    model = language(config.data_dir, config.sequences, config.length, rng)
    data: dict[str, Any] = {"synthetic": model.synthetic}
    for name, problem in (("random", model.random), ("trained", model.trained)):
        heads = block_norms(
            problem.select(model.attention[config.layer]),
            "head",
            method="stochastic",
            probes=config.head_probes,
            rng=rng,
        )
        heads = replace(heads, layers=tuple(_projection(name) for name in heads.names))
        neurons = _some_neurons(problem, model.feed[config.layer], config, rng)
        words = output_block_norms(problem, model.head)
        data[name] = {
            "loss": problem.loss_value(),
            "heads": {"norms": heads.norms, "stderr": heads.stderr, "layers": heads.layers},
            "head_ratios": heads.layer_ratios,
            "neurons": {"norms": neurons.norms, "layers": ("neurons",) * len(neurons.norms)},
            "neuron_ratio": neurons.ratio,
            "word_diagonal": words.diagonal,
            "word_off": words.off_diagonal,
            "word_ratio": words.ratio,
            "word_share": words.diagonal_share,
        }
    trained, random = data["trained"], data["random"]
    errors = np.asarray(trained["heads"]["stderr"]) / np.maximum(trained["heads"]["norms"], 1e-30)
    query, key, value, after = (trained["head_ratios"][name] for name in ("queries", "keys", "values", "output"))
    apart = max(query, key) - min(value, after)
    # A ratio is a mean over pairs of heads: its error is that of one norm over the root of their number.
    pairs = max(1, len(errors) // 4 * (len(errors) // 4 - 1))
    measured = {
        "trained": trained["loss"] / random["loss"],
        "tokens-random": float(random["word_share"]),
        "tokens-trained": float(trained["word_share"]),
        "neurons": float(trained["neuron_ratio"]),
        "heads": (float(apart), f"{max(query, key):.3g} against {min(value, after):.3g}"),
        "errors": float(np.median(errors) * max(value, after) / np.sqrt(pairs) / max(abs(apart), 1e-30)),
    }
    return data, measured


def _some_neurons(problem: Problem, glob: str, config: Config, rng: Rng) -> BlockNorms:
    """Norms between the first neurons of a matrix: the others are one more block, which is dropped."""
    part = problem.select(glob)
    (shape,) = part.space.shapes
    rows = Partition.by("neuron", part).labels
    keep = min(config.neurons, shape[0])
    names = tuple(f"neuron {k}" for k in range(keep)) + (("others",) if keep < shape[0] else ())
    partition = Partition(
        rows.clamp_max(keep if keep < shape[0] else keep - 1), names, ("feed",) * keep + ("rest",) * (len(names) - keep)
    )
    return block_norms(part, partition, method="stochastic", probes=config.neuron_probes, rng=rng)


def _projection(name: str) -> str:
    """What a block of a head belongs to, whether the projections are fused or apart."""
    found = re.search(r"\.(\w+)\[(?:(query|key|value) )?head \d+\]", name)
    assert found is not None
    return {"wq": "queries", "wk": "keys", "wv": "values", "query": "queries", "key": "keys", "value": "values"}.get(
        found[2] or found[1], "output"
    )


def figures(result: Outcome) -> dict[str, Any]:
    """Maps by head, bars by projection, and the head's blocks by token."""
    figure, axes = new_figure(2, 2, width=4.4, height=3.6)
    axes = axes.ravel()
    for axis, name in zip(axes, ("random", "trained"), strict=False):
        part = result.data[name]["heads"]
        drawn = draw_norms(axis, part["norms"], part["layers"], f"attention by head, {name} weights", 2.0)
        axis.set_xlabel("head, by projection")
        axis.set_ylabel("head, by projection")
    figure.colorbar(drawn, ax=axes[1], shrink=0.8).set_label("log₁₀, relative")
    groups = {
        name: {
            **result.data[name]["head_ratios"],
            "neurons": result.data[name]["neuron_ratio"],
            "tokens": result.data[name]["word_ratio"],
        }
        for name in ("random", "trained")
    }
    layer_bars(axes[2], groups)
    for name, ink in zip(("random", "trained"), CYCLE, strict=False):
        part = result.data[name]
        axes[3].loglog(part["word_diagonal"], np.maximum(part["word_off"], 1e-30), ".", color=ink, ms=3, label=name)
    axes[3].set(xlabel="‖H_cc‖ of a token", ylabel="RMS of ‖H_cj‖, j ≠ c", title="language-model head, exact")
    axes[3].tick_params(axis="x", which="both", rotation=45, labelsize=8)
    axes[3].legend(fontsize=8)
    name = "synthetic stand-in" if result.data["synthetic"] else "stories260K"
    figure.suptitle(f"A trained transformer ({name}), last layer", fontsize=11)
    return {"transformer": figure}


EXPERIMENT = experiment(
    __name__,
    "A trained transformer by head, neuron and token",
    "beyond Dong et al. 2025",
    quick=Config(),
    default=Config(16, 128, -1, 32, 172, 8),
    paper=Config(16, 128, -1, 32, 172, 8),
    chosen="everything: the paper shows no transformer.",
)
