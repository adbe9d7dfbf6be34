"""Beyond Table 7: Kronecker forms of convolutions, (33), "reduce", K-FAC reduce and the nearest one, with their errors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...curvature import Problem
from ...errors import refuse
from ...kron import Decoupling, decouple_layers, subspace_overlap
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Claim, Experiment, Outcome
from ...zoo.data import data_dir, load
from ...zoo.models import load_cifar_resnet
from ._trained import Setting, trained

SOURCE = "Wu et al., (33), made quantitative"
FORMS = ("expand", "reduce", "kfac_reduce", "nearest")


@dataclass(frozen=True)
class Config(Setting):
    """`network` may also be "resnet20" or "resnet32": trained weights with batch-norm, from the data folder."""

    network: str = "lenet5"
    layers: tuple[str, ...] = ("conv1", "conv2")


def run(config: Config) -> Outcome:
    """Relative errors of every form, and the overlap of its top c - 1 eigenspace with that of the exact Hessian."""
    problem, classes = _problem(config)
    data = {name: _measure(d, classes - 1) for name, d in decouple_layers(problem, config.layers).items()}
    claims = [claim for name, found in data.items() for claim in _claims(name, found)]
    return Outcome("wu2022.reductions", asdict(config), data, tuple(claims))


def _problem(config: Config) -> tuple[Problem, int]:
    folder = data_dir(config.data_dir)
    if config.network.startswith("resnet"):
        if folder is None:
            refuse(
                f"the trained {config.network} must be at hand", "no data folder", "Use --data-dir or $HESSCOPE_DATA."
            )
        found = load("cifar10", folder=folder, count=config.examples)
        model = load_cifar_resnet(folder, int(config.network.removeprefix("resnet")))
        return Problem.of(model, "cross_entropy", (found.x, found.y), batch_size=64), found.classes
    models = trained(config)
    return models.problem(), models.examples.classes


def _measure(d: Decoupling, space: int) -> dict[str, Any]:
    errors = d.errors()
    true = eigenpairs(d.exact, k=space)
    forms = (d.with_reduction("expand"), d.with_reduction("reduce"), d.with_reduction("kfac_reduce"), d.nearest())
    overlaps = [subspace_overlap(true.vectors, form.eigenpairs(space)[1]) for form in forms]
    return {
        "positions": d.positions,
        "spectral": errors.spectral,
        "frobenius": errors.frobenius,
        "frobenius_stderr": errors.frobenius_stderr,
        "overlap": np.array(overlaps),
        "iterations": d.nearest().iterations,
        "chance": space / d.exact.shape[0],
        "alignment": d.alignment(),
        "ratio": d.spectral_ratio(),
    }


def _claims(name: str, found: dict[str, Any]) -> list[Claim]:
    spectral, frobenius, overlap = found["spectral"], found["frobenius"], found["overlap"]

    def shown(values: Any) -> str:
        return ", ".join(f"{form} {value:.2f}" for form, value in zip(FORMS, values, strict=True))

    top = Claim(
        f"{name}: (33) leaves out how positions act together and misses the top of the spectrum; "
        '"reduce" keeps it, since behind a ReLU positions share a mean input.',
        SOURCE,
        "relative spectral error of expand above those of reduce, K-FAC reduce and nearest",
        shown(spectral),
        bool(spectral[0] > spectral[1:].max()),
    )
    return [
        Claim(
            f"{name}: no Kronecker product is nearer than Van Loan's, and it is nearer than (33) by a margin.",
            SOURCE,
            "smallest relative Frobenius error, below 0.9 times that of expand",
            shown(frobenius),
            bool(frobenius.argmin() == 3 and frobenius[3] <= 0.9 * frobenius[0]),
        ),
        Claim(
            f"{name}: even so the top c - 1 eigenspace of (33) overlaps with the exact one far beyond chance.",
            "Wu et al., Section F.2.2",
            f"overlap at least 5 times chance ({found['chance']:.4f})",
            shown(overlap),
            bool(overlap[0] >= 5 * found["chance"]),
        ),
        *([] if name == "conv1" else [top]),
    ]


def figures(outcome: Outcome) -> dict[str, Any]:
    """Errors and overlap of every form, layer by layer."""
    layers = list(outcome.data)
    labels = {"expand": "expand, (33)", "reduce": "reduce", "kfac_reduce": "K-FAC reduce", "nearest": "nearest"}
    return {
        kind: plots.bars(
            layers, {labels[f]: [outcome.data[n][kind][i] for n in layers] for i, f in enumerate(FORMS)}, ylabel
        )
        for kind, ylabel in (
            ("frobenius", "relative Frobenius error"),
            ("spectral", "relative spectral error"),
            ("overlap", "overlap of top c - 1 spaces"),
        )
    }


EXPERIMENT = Experiment(
    name="wu2022.reductions",
    title="Kronecker forms of convolutions, with their errors",
    source="Wu et al., (33) and Section F.2.2; Van Loan & Pitsianis (1993)",
    quick=Config(examples=200, epochs=30),
    paper=Config(
        data="cifar10",
        examples=200,
        network="resnet20",
        layers=("conv1", "layer1.1.conv1", "layer2.0.conv1", "layer2.2.conv2"),
    ),
    run=run,
    figures=figures,
)
