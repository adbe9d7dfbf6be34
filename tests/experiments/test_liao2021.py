"""Every figure of Liao & Mahoney at its quick size: all claims hold and all figures draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesscope.experiments import registry
from hesscope.results.claims import Outcome

NAMES = [f"liao2021.fig{k}" for k in range(1, 6)]


@pytest.mark.parametrize("name", NAMES)
def test_quick_claims_hold(name: str, tmp_path: Path) -> None:
    experiment = registry.find(name)
    outcome = experiment.run(experiment.quick)
    assert outcome.claims
    broken = [f"{c.statement}: expected {c.expected}, got {c.got}" for c in outcome.claims if not c.holds]
    assert not broken, "\n".join(broken)
    saved = Outcome.load(outcome.save(tmp_path / "outcome"))
    for figure in experiment.figures(saved).values():
        assert figure.axes
        assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)


def test_all_figures_are_registered() -> None:
    assert set(NAMES) <= set(registry.names())
