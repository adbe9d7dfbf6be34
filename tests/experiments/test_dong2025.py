"""Every measured figure of Dong et al. at its quick size: all claims hold, and the figures are drawn from saved results."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesscope.experiments.registry import find
from hesscope.result import Result

NAMES = ("fig1", "fig2_3", "fig4_7", "fig10", "fig11_12", "deep", "spectra", "trained_cnn", "trained_transformer")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_claims_hold_and_figures_are_drawn(name: str, tmp_path: Path) -> None:
    experiment = find(f"dong2025.{name}")
    found = experiment.run(experiment.quick)
    failed = [
        f"{claim.statement}: expected {claim.expected}, got {claim.got}" for claim in found.claims if not claim.holds
    ]
    assert not failed, "\n".join(failed)
    drawn = experiment.figures(Result.load(found.save(tmp_path / name)))
    for key, figure in drawn.items():
        figure.savefig(tmp_path / f"{key}.png", dpi=30)
        assert all(axis.get_title() or axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes)
