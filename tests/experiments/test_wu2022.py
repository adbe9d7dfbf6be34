"""Experiments on Kronecker decoupling: claims that can fail, and models trained together."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import hesscope as hs
from hesscope.experiments.wu2022 import _trained
from hesscope.experiments.wu2022._trained import Setting, trained
from hesscope.results.kronecker import PredictedEigenspace


def test_claims_fail_when_the_closed_form_is_the_printed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claims are able to fail: without activation frequencies Theorem 4.2 is wrong."""
    from hesscope.experiments.wu2022 import theorem4

    true = hs.predicted_output_eigenspace

    def printed(problem: hs.Problem, layer: str) -> PredictedEigenspace:
        found = true(problem, layer)
        return dataclasses.replace(found, corrected=found.printed)

    monkeypatch.setattr(theorem4, "predicted_output_eigenspace", printed)
    outcome = theorem4.EXPERIMENT.outcome(theorem4.Config(widths=(15, 40), examples=500, draws=2))
    (corrected,) = [claim for claim in outcome.claims if claim.id == "corrected"]
    assert corrected.holds is False


def test_models_trained_together_are_those_trained_one_by_one() -> None:
    setting = Setting(width=6, depth=1, epochs=2, examples=300)
    together = trained(setting, 2)
    one_by_one = _trained.untrained(setting, 2)
    _trained._train_one(setting, one_by_one, 1)
    for a, b in zip(together.models[1].parameters(), one_by_one.models[1].parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
