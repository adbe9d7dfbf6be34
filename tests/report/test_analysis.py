"""One analysis of the demo network: its claims have power, and its parts share what they find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.analysis.claims import claims_of
from hesscope.analysis.config import AnalyzeConfig
from hesscope.curvature.proofs import independence
from hesscope.landscapes.losses_at import LossAt
from hesscope.layers import everywhere
from hesscope.results.analysis import Analysis
from hesscope.zoo.presets import preset


@pytest.fixture(scope="module")
def demo() -> Analysis:
    """The network of `hesscope demo`, with the settings of `hesscope demo`, as far as its trace is concerned."""
    parts = dict.fromkeys(("check", "gauss_newton", "block_maps", "per_layer", "landscape"), False)
    settings = AnalyzeConfig(decouple=0, **parts)
    return hs.analyze(preset("mlp-digits").problem, settings)


def _agreement(a: Analysis) -> bool | None:
    return next(claim.holds for claim in claims_of(a) if "density" in claim.source)


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.2, False), (0.8, False)])
def test_a_trace_wrong_by_a_fifth_is_caught(demo: Analysis, factor: float, holds: bool) -> None:
    wrong = replace(demo, trace=replace(demo.trace, value=factor * float(demo.trace)))
    assert _agreement(wrong) is holds


def test_the_second_opinion_is_right_within_its_error(demo: Analysis) -> None:
    assert demo.trace.exact
    assert demo.trace_by_products is not None
    error = float(demo.trace_by_products.stderr)
    assert 0 < error < 0.02 * float(demo.trace)
    assert abs(float(demo.trace_by_products) - float(demo.trace)) < 4 * error


def test_one_analysis_makes_at_most_twelve_passes_over_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The analysis of `hesscope demo`, with its settings: every forward pass counts by its share of the data, those of
    checks on a few examples and of every batch in parts included. Beside them stand the points of the landscape alone,
    each the loss at other parameters."""
    problem = preset("mlp-digits", steps=20).problem
    examples, passes, away = problem.totals[1], [0.0, 0.0], [False]
    plain, loss_at = nn.Sequential.__call__, LossAt.__call__

    def counted(model: nn.Sequential, x: Any) -> Any:
        passes[away[0]] += len(x) / examples
        return plain(model, x)

    def elsewhere(self: LossAt, displacement: Tensor) -> float:
        away[0] = bool(displacement.any())
        try:
            return loss_at(self, displacement)
        finally:
            away[0] = False

    monkeypatch.setattr(nn.Sequential, "__call__", counted)
    monkeypatch.setattr(LossAt, "__call__", elsewhere)
    compared, parts = [0], independence.parts_add_up

    def counted_parts(*given: Any) -> bool:
        compared[0] += 1
        return parts(*given)

    monkeypatch.setattr(everywhere, "parts_add_up", counted_parts)
    found = hs.analyze(problem, AnalyzeConfig(), budget="1h")
    assert len(found.kronecker) == 3
    assert len(found.blocks) == 2
    assert found.gauss_newton_trace is not None
    assert float(found.gauss_newton_trace) == float(found.trace)  # the network is affine in each parameter
    assert found.landscape is not None
    assert passes[1] == found.landscape.passes - 1  # one of those is at the parameters themselves
    assert compared == [1]
    assert 5 < passes[0] <= 12


def test_finer_maps_are_of_the_gauss_newton_part_where_those_of_the_hessian_are_too_dear() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(5, 8), nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True), nn.Linear(8, 5)
    )
    tokens = torch.randint(0, 5, (6, 4), generator=torch.Generator().manual_seed(0))
    problem = hs.Problem.of(model, "cross_entropy", (tokens, tokens), forward=lambda m, b: (m(b[0]).mT, b[1]))
    settings = AnalyzeConfig(
        k=3, smallest=1, probes=2, steps=8, check=False, decouple=0, landscape=False, per_layer=False, most_blocks=20
    )
    found = hs.analyze(problem, settings)
    finer = next(norms for norms in found.blocks if norms.matrix == "gauss_newton")
    assert finer.partition == "head"
    truth = hs.block_norms(problem, "head", matrix="gauss_newton", method="exact")
    assert finer.names == truth.names
    assert np.mean(np.abs(finer.norms - truth.norms) <= 3 * finer.stderr) > 0.9
    layers = found.block_norms("layer")
    assert layers is not None
    assert layers.matrix == "hessian"
    assert found.block_norms("head") is None  # of H


class _Scaled(nn.Module):
    """A learned temperature, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))
        self.norm, self.last = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.temperature * self.last(self.norm(x))
        return logits


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (lambda: nn.Linear(4, 1), 0),
        (lambda: nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3)), 3),
        (_Scaled, 3),
        (lambda: nn.Sequential(nn.LayerNorm(4)), 0),
    ],
    ids=["one output", "many neurons", "scalar parameter", "norm alone"],
)
def test_everyday_networks_without_heads_or_with_odd_parameters_are_analysed(
    model: Callable[[], nn.Module], classes: int
) -> None:
    """What a network has nothing of is left out, not refused."""
    torch.manual_seed(0)
    made = model()
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(24) % classes if classes else torch.zeros_like(made(x))
    problem = hs.Problem.of(made, "cross_entropy" if classes else "mse", (x, y))
    found = hs.analyze(problem, AnalyzeConfig(k=3, smallest=1, probes=2, steps=6, most_blocks=20, landscape=False))
    truth = float(torch.linalg.eigvalsh(hs.dense_hessian(problem).double())[-1])
    assert float(found.largest.values[0]) == pytest.approx(truth, rel=1e-4)
