"""Figures 9, 10 and 23 to 28: where the overlap does not peak at m, and why: early peaks, and LeNet5 with batch-norm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...kron import correspondence, decouple, matricize, model_overlap
from ...linalg import eigenpairs
from ...plots import kron as plots
from ...results.claims import Outcome
from ..declared import Measured, less, more
from ..recipe import Findings, experiment
from ._fits import TrainingFit, as_data, fit_of, results, where_trained, with_fits
from ._overlaps import arrays
from ._spectra import closeness
from ._trained import START, STEEP, Setting, only_setting, trained

SOURCE = "Wu et al., Figures 9 and 23, Section G.3.3"
NORMED = "Wu et al., Figures 26 to 28, Section G.4"
LATE = "Wu et al., Figures 10, 24 and 25, Section G.3.3"
CLAIMS = (
    less("early", SOURCE, "fc2 of F-200²: the premise τ_m γ₁ > τ₁ γ₂ fails, so the overlap peaks before m (place of its peak over m)", 0.5,
         "“an early peak around 10”, of m = 200", basis="convention"),
    more("reach", SOURCE, "... where Kronecker factors predict it: the first c - 1 eigenvectors belong to Ê[x] more than the next (mean "
         "correspondence, 1 to 9 over 10 to 18)", 1, "“little of the 10-19 dimensional eigenspace were contributed by Ê[x]”"),
    less("second", SOURCE, "... since τ_c γ₁ < τ₁ γ₂ (quotient of the two)", 1, "“it has τ₁₀ γ₁ < τ₁ γ₂”"),
    less("bn-rank", NORMED, "LeNet5-BN, fc1: E[x xᵀ] is no longer close to rank one (share of its first eigenvalue in the trace)", 0.5,
         "“no longer close to rank 1”: less than all others together", basis="convention"),
    less("bn-first", NORMED, "LeNet5-BN, fc1: few eigenvectors belong to its first eigenvector (mean correspondence of the first m, or of all "
         "computed)", 0.5, "“only very few eigenvectors ... will have high correspondence”", basis="convention"),
    less("bn-peak", NORMED, "LeNet5-BN, fc1: the overlap of models has no peak at m (overlap at m over that at the largest k)", 1,
         "“the disappearance of peak in top eigenspace overlap”"),
    less("bn-values", NORMED, "LeNet5-BN, fc1: the decoupling still gives the top c - 1 eigenvalues (mean |log quotient| over their range on that "
         "scale)", 0.1, "Figure 28's two curves lie on each other: a tenth of their height apart at most", basis="convention"),
    more("late", LATE, "VGG11, conv2: the overlap of models peaks after m (place of its peak over m)", 1,
         "“the peak dimension is larger than predicted output dimension”"),
    less("late-premise", LATE, "... since E[x xᵀ] has a second eigenvalue that counts: τ_m γ₁ < τ₁ γ₂ (quotient of the two)", 1,
         "“for these exceptional layers we have τ_m γ₁ < τ₁ γ₂”"),
    more("late-tail", LATE, "... and E[M] a heavy tail (trace behind the first c - 1 eigenvalues over that of these)", 1,
         "“no longer has a significant peak – instead it has a heavy tail”: more behind the peak than in it", basis="convention"),
    less("late-gradual", LATE, "... so that eigenvectors belong to Ê[x] less and less (mean correspondence, m + 1 to 2m over 1 to m)", 1,
         "“the gradual decreasing correlation with Ê[x]”"),
)  # fmt: skip


NAMES = {"fc2": "fc2 of the dense network", "fc1": "fc1 of LeNet5-BN", "conv2": "conv2 of VGG11"}


@dataclass(frozen=True)
class Config(Setting):
    """A dense network (`width`, `depth`) whose fc2 fails the premise; LeNet5 with batch-norm, and VGG11, on `images`."""

    images: str = "digits"
    image_epochs: int = 10
    models: int = 5
    k: int = 60
    bn_k: int = 60
    vgg_width: int = 8
    vgg_examples: int | None = 96
    vgg_epochs: int = 40
    vgg_k: int = 18
    vgg_batch: int = 16
    steep: bool = (
        True  # networks on images are trained with momentum in small batches, where the paper's rate takes hours
    )

    @property
    def image_training(self) -> dict[str, Any]:
        """Of LeNet5-BN, in place of the dense network's."""
        return {**STEEP, "xavier": False} if self.steep else {}

    @property
    def vgg_training(self) -> dict[str, Any]:
        """Of VGG11, which needs Xavier's weights besides."""
        return {**STEEP, "batch_size": self.vgg_batch} if self.steep else {}


def run(config: Config) -> Findings:
    """Overlap of models, spectra of both factors and correspondence with E[x xᵀ], for both cases."""
    base = only_setting(config)
    cases = {
        "fc2": (base, config.k),
        "fc1": (
            replace(
                base, data=config.images, network="lenet5", batch_norm=True, epochs=config.image_epochs,
                **config.image_training,
            ),
            config.bn_k,
        ),
        "conv2": (
            replace(
                base, data=config.images, network="vgg11", width=config.vgg_width, examples=config.vgg_examples,
                epochs=config.vgg_epochs, **config.vgg_training,
            ),
            config.vgg_k,
        ),
    }  # fmt: skip
    data: dict[str, Any] = {}
    fits: dict[str, TrainingFit] = {}
    for layer, (setting, k) in cases.items():
        found = trained(setting, config.models)
        fits[NAMES[layer]] = fit_of(found)
        problems = [found.problem(i).cast(torch.float64) for i in range(config.models)]
        overlap = model_overlap(problems, layer, k=k)
        d = decouple(problems[0], layer)
        exact = eigenpairs(d.exact, k=min(k, d.exact.shape[0]))
        gamma, basis = torch.linalg.eigh(d.input_autocorrelation)
        stack = matricize(exact.vectors.cpu().double(), (len(d.output_hessian), len(d.input_autocorrelation)))
        data[layer] = {
            **arrays(overlap), "inputs": gamma.flip(0).numpy(), "taus": torch.linalg.eigvalsh(d.output_hessian).flip(0).numpy(),
            "exact": exact.values, "decoupled": d.eigenpairs(len(exact.values))[0].numpy(),
            "correspondence": correspondence(stack, basis.flip(1)[:, :20], side="inputs").numpy(),
            "classes": found.examples.classes,
        }  # fmt: skip
    plain, normed, late = (fits[name] for name in NAMES.values())
    measured = where_trained(_plain(data["fc2"]), plain) | where_trained(_normed(data["fc1"]), normed)
    return data | as_data(fits), measured | where_trained(_late(data["conv2"]), late)


def _plain(plain: dict[str, Any]) -> dict[str, Measured]:
    space = plain["classes"] - 1
    mean, row = plain["measured"].mean(0), plain["correspondence"][0]
    early = (1 + int(mean.argmax())) / plain["outputs"] if len(mean) > 0.6 * plain["outputs"] else "k does not reach m"
    return {
        "early": early,
        "reach": float(row[:space].mean() / row[space : 2 * space].mean()),
        "second": float(plain["taus"][space] * plain["inputs"][0] / (plain["taus"][0] * plain["inputs"][1])),
    }


def _normed(normed: dict[str, Any]) -> dict[str, Measured]:
    mean = normed["measured"].mean(0)
    m = min(normed["outputs"], len(mean))
    return {
        "bn-rank": float(normed["inputs"][0] / normed["inputs"].sum()),
        "bn-first": float(normed["correspondence"][0][:m].mean()),
        "bn-peak": float(mean[m - 1] / mean[-1]) if len(mean) > 1.2 * m else "k does not reach beyond m",
        "bn-values": closeness(normed["decoupled"], normed["exact"], normed["classes"] - 1),
    }


def _late(late: dict[str, Any]) -> dict[str, Measured]:
    mean, row, m, space = late["measured"].mean(0), late["correspondence"][0], late["outputs"], late["classes"] - 1
    tau, gamma = late["taus"], late["inputs"]
    far = len(mean) >= 2 * m
    return {
        "late": (1 + int(mean.argmax())) / m if far else "k does not reach 2m",
        "late-premise": float(tau[m - 1] * gamma[0] / (tau[0] * gamma[1])),
        "late-tail": float(tau[space:].sum() / tau[:space].sum()) if m > 2 * space else "too few outputs for a tail",
        "late-gradual": float(row[m : 2 * m].mean() / row[:m].mean()) if far else "k does not reach 2m",
    }


def figures(outcome: Outcome) -> dict[str, Any]:
    """Overlaps, spectra of the factors and correspondence matrices of both cases."""
    data = results(outcome)
    spectra = {
        NAMES[layer]: {
            r"$\gamma_i/\gamma_1$ of E[xxᵀ]": found["inputs"][:30] / found["inputs"][0],
            r"$\tau_i/\tau_1$ of E[M]": np.maximum(found["taus"][:30] / found["taus"][0], 1e-8),
        }
        for layer, found in data.items()
    }
    maps = {f"{NAMES[layer]}, with E[xxᵀ]": found["correspondence"] for layer, found in data.items()}
    drawn = {
        "overlap": plots.model_overlaps({NAMES[layer]: found for layer, found in data.items()}),
        "spectra": plots.curves(spectra, "index", "relative eigenvalue", log=True),
        "correspondence": plots.correspondences(maps),
    }
    return with_fits(drawn, outcome)


EXPERIMENT = experiment(
    __name__,
    "Where the overlap of models does not peak at the output dimension",
    "Wu et al., Figures 9, 10 and 23 to 28",
    quick=Config(width=30, examples=400, batch_size=32, epochs=10, image_epochs=3, models=3, k=40, bn_k=30),
    default=Config(
        data="mnist",
        examples=5000,
        width=100,
        epochs=15,
        rate=0.05,
        images="cifar10",
        image_epochs=10,
        measured_on=1000,
        models=3,
        k=120,
        bn_k=150,
        vgg_width=24,
        vgg_examples=1000,
        vgg_epochs=40,
        vgg_batch=32,
        vgg_k=60,
    ),
    paper=Config(
        data="mnist",
        width=200,
        epochs=1000,
        rate=0.01,
        images="cifar10",
        image_epochs=1000,
        k=400,
        bn_k=300,
        vgg_width=200,
        vgg_examples=None,
        vgg_epochs=1000,
        steep=False,
        vgg_k=400,
    ),
    chosen=f"10,000 of the 50,000 images of CIFAR-10 are at hand. {START}",
)
