"""One analysis of the demo network: its claims have power."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hesscope as hs
from hesscope.analysis.claims import claims_of
from hesscope.analysis.config import AnalyzeConfig
from hesscope.results.analysis import Analysis
from hesscope.zoo.presets import preset


@pytest.fixture(scope="module")
def demo() -> Analysis:
    """The network of `hesscope demo`, with the settings of `hesscope demo`, as far as its trace is concerned."""
    settings = AnalyzeConfig(check=False, gauss_newton=False, block_maps=False, decouple=0)
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
