"""Tables 6 and 7 and Figure 2 on networks that others trained to the end: the inputs and the decoupling of ResNet-20 and ResNet-32."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...curvature import Problem
from ...kron import decouple_layers
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, between, less, more
from ..long_runs import progress
from ..recipe import Findings, experiment
from ._fits import as_data, fit_on, where_trained, with_fits
from ._moments import closeness, input_moments
from ._pretrained import PRETRAINED, published
from ._printed import TABLE_7
from ._trained import NETWORKS, STEEP, Setting, trained

ROWS = [row for row in TABLE_7 if row.network == "resnet18"]
OF_DECOUPLED = ("error", "overlap", "reduce")
CLASSES = 10  # of digits and of CIFAR-10
FROM = "smallest and largest of the paper's ResNet18 rows; these networks are deeper and narrower, with batch-norm, on CIFAR-10"
CLAIMS = (
    more("dominates", "Wu et al., Section 3.1", "In every convolution but the first of every network, the top eigenvector of E[x xᵀ] is "
         "nearer to Ê[x] than to anything else (smallest (v₁ᵀÊ[x])²)", 0.5, "“E[x]E[xᵀ] indeed dominated”", basis="convention"),
    *(
        one
        for name in PRETRAINED
        for one in (
            between(f"{name}-alignment", "Wu et al., Table 7", f"{name}: mean of (v₁ᵀÊ[x])² over convolutions but the first",
                    min(r.alignment[1] for r in ROWS) - 0.0005, max(r.alignment[2] for r in ROWS) + 0.0005, FROM,
                    printed=float(np.mean([r.alignment[0] for r in ROWS]))),
            between(f"{name}-ratio", "Wu et al., Table 7", f"{name}: mean of λ₁/λ₂ over convolutions but the first",
                    min(r.ratio[1] for r in ROWS), max(r.ratio[2] for r in ROWS), FROM,
                    printed=float(np.mean([r.ratio[0] for r in ROWS]))),
        )
    ),
    less("error", "Wu et al., (3), (33)", "The decoupling of trained convolutions as (33) has it is good (largest relative spectral error)",
         0.5, "“ε a small constant”: less than half", basis="convention"),
    more("overlap", "Wu et al., Section 5.1", "... and its top c - 1 eigenspaces are the exact ones (smallest overlap)", 0.5,
         "“works reasonably well on the top eigenspace”: for most of it", basis="convention"),
    more("reduce", "Wu et al., (33)", "Summing over positions first serves top eigenspaces better (mean overlap minus that of (33))", 0,
         "exact where all positions have the same input", corrected=True),
)  # fmt: skip


@dataclass(frozen=True)
class Config(Setting):
    """`networks` from the data folder, or one that is trained here; `decoupled` layers of the first of them."""

    networks: tuple[str, ...] = PRETRAINED
    decoupled: tuple[str, ...] = ("layer1.1.conv1", "layer2.2.conv2", "layer3.2.conv1")
    decoupled_on: int = 60


def run(config: Config) -> Findings:
    """Inputs of every convolution; the exact Hessians of some of them beside both Kronecker forms."""
    data: dict[str, Any] = {}
    measured: dict[str, Measured] = {}
    fits = {}
    for name in config.networks:
        progress(f"inputs of {name}")
        model, x, y = _network(config, name)
        fits[name] = fit_on([model], x, y, CLASSES)
        rows = [(layer, *closeness(*moments)) for layer, moments in input_moments(model, x).items()][1:]
        data[name] = {
            "layers": np.array([row[0] for row in rows]),
            "alignment": np.array([row[1] for row in rows]),
            "ratio": np.array([row[2] for row in rows]),
        }
        if name in PRETRAINED:
            measured[f"{name}-alignment"] = float(data[name]["alignment"].mean())
            measured[f"{name}-ratio"] = float(data[name]["ratio"].mean())
    measured["dominates"] = min(float(found["alignment"].min()) for found in data.values())
    data["decoupled"] = found = _decoupled(config)
    if len(found["dead"]):
        measured |= dict.fromkeys(OF_DECOUPLED, f"{found['dead'][0]} is dead at these examples: its Hessian is zero")
    else:
        measured["error"] = float(found["error"][:, 0].max())
        measured["overlap"] = float(found["overlap"][:, 0].min())
        measured["reduce"] = float((found["overlap"][:, 1] - found["overlap"][:, 0]).mean())
    return data | as_data(fits), where_trained(measured, *fits.values())


def _network(config: Config, name: str) -> tuple[nn.Module, Tensor, Tensor]:
    if name in NETWORKS:
        models = trained(replace(config, network=name))
        return models.models[0], models.examples.x, models.examples.y
    model, found = published(name, config)
    return model, found.x, found.y


def _decoupled(config: Config) -> dict[str, Any]:
    model, x, y = _network(config, config.networks[0])
    count = config.decoupled_on
    problem = Problem.of(model.eval(), "cross_entropy", (x[:count], y[:count]), batch_size=64)
    space = int(y.max())  # c - 1
    dead = _dead(model, x[:count], y[:count], config.decoupled)
    alive = [name for name in config.decoupled if name not in dead]
    errors, overlaps = [], []
    for name, d in decouple_layers(problem, alive).items() if alive else ():
        progress(f"decoupling {name}")
        found = [each.compare(space) for each in (d, d.with_reduction("reduce"))]
        errors.append([float(one.spectral_error) for one in found])
        overlaps.append([float(one.overlap[-1]) for one in found])
    return {
        "layers": np.array(alive),
        "error": np.array(errors).reshape(-1, 2),
        "overlap": np.array(overlaps).reshape(-1, 2),
        "dead": np.array(dead),
    }


def _dead(model: nn.Module, x: Tensor, y: Tensor, layers: tuple[str, ...]) -> list[str]:
    """Those on which the loss does not depend: rectified units of a narrow network can all be off behind a layer."""
    weights = [parameter for name in layers for parameter in model.get_submodule(name).parameters()]
    owners = [name for name in layers for _ in model.get_submodule(name).parameters()]
    found = torch.autograd.grad(F.cross_entropy(model(x), y), weights, allow_unused=True)
    moves = {name for name, slope in zip(owners, found, strict=True) if slope is not None and slope.any()}
    return [name for name in layers if name not in moves]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Both numbers along the depth, and the two Kronecker forms."""
    nets = {name: part for name, part in outcome.data.items() if "ratio" in part}
    panels = {
        r"$(v_1^T \hat E[x])^2$": {name: part["alignment"] for name, part in nets.items()},
        r"$\lambda_1/\lambda_2$ of $E[xx^T]$": {name: part["ratio"] for name, part in nets.items()},
    }
    inputs = plots.curves(panels, "convolution, from the second on", "")
    for axis, key in zip(inputs.axes, ("alignment", "ratio"), strict=True):
        low, high = min(getattr(r, key)[1] for r in ROWS), max(getattr(r, key)[2] for r in ROWS)
        axis.axhspan(low, high, color="#d9631e", alpha=0.12, linewidth=0, label="paper's ResNet18, range")
        axis.legend(frameon=False, fontsize=8)
    found = outcome.data["decoupled"]
    if not len(found["layers"]):
        return with_fits({"inputs": inputs}, outcome)
    labels = ("expand, (33)", "reduce")
    bars = plots.bars(
        [str(name) for name in found["layers"]],
        {f"overlap, {label}": found["overlap"][:, i] for i, label in enumerate(labels)}
        | {f"error, {label}": found["error"][:, i] for i, label in enumerate(labels)},
        "top c - 1 overlap, relative spectral error",
    )
    return with_fits({"inputs": inputs, "decoupled": bars}, outcome)


EXPERIMENT = experiment(
    __name__,
    "Inputs and decoupling in trained ResNets",
    "Wu et al., Tables 6 and 7, Figure 2, on networks of our own choice",
    quick=Config(
        **{**STEEP, "batch_size": 16},
        networks=("resnet18",),
        examples=96,
        width=8,
        epochs=64,
        decoupled=("blocks.7.conv2",),
        decoupled_on=16,
    ),
    default=Config(examples=200),
    paper=Config(examples=1000, decoupled_on=200),
    chosen="everything: published weights of ResNet-20 and ResNet-32 on CIFAR-10, with batch-norm; the paper has ResNet18 without.",
)
