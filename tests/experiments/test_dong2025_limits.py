"""The claims about limits can fail."""

from __future__ import annotations

import dataclasses

import pytest

from hesscope.rmt import block_limits


def test_claims_fail_when_the_limits_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling a prediction must be noticed: the claims are able to fail."""
    from hesscope.experiments.dong2025 import fig8

    true = block_limits.linear_cross_entropy

    def doubled(ratio: float, classes: int) -> block_limits.BlockLimit:
        limit = true(ratio, classes)
        return dataclasses.replace(limit, diagonal=(2 * limit.diagonal[0], 0.0))

    monkeypatch.setattr(block_limits, "linear_cross_entropy", doubled)
    claims = {claim.id: claim for claim in fig8.EXPERIMENT.outcome(fig8.Config(100, 100, (2, 10), 20)).claims}
    assert claims["diagonal"].holds is False
    assert claims["off-diagonal"].holds
