"""Experiments on Kronecker decoupling: claims that can fail, and models trained together."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import hesscope as hs
from hesscope.experiments.wu2022 import _appendix, _moments, _trained, lemmas
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


def test_norms_of_layer_hessians_over_pairs_are_those_of_the_matrices() -> None:
    """Lemmas B.14 to B.23 are measured without forming H = E[D Wᵀ A W D ⊗ x xᵀ]; here it is formed, on either half."""
    net = _appendix.draw(hs.Rng(3), n=4, d=6, c=3, examples=10, columns=6)
    x = torch.empty(10, 6, dtype=torch.float64)
    x[:, net.columns] = net.inputs
    assert torch.allclose(x @ net.first.T, net.u, rtol=1e-12)
    lifted = torch.kron(net.second, torch.full((1, 6), 6**-0.5, dtype=torch.float64))
    hessians, outputs = [], []
    for half in (slice(0, 5), slice(5, 10)):
        single = [w.T @ a @ w for a, w in zip(net.a[half], net.second * net.on[half][:, None], strict=True)]
        outputs.append(torch.stack(single).mean(0))
        hessians.append(
            torch.stack([torch.kron(m, torch.outer(v, v)) for m, v in zip(single, x[half], strict=True)]).mean(0) / 6
        )
    exact, _ = _appendix.output_hessians(net)
    assert torch.allclose(exact, torch.stack(outputs), rtol=1e-12, atol=1e-15)
    projected = [lifted @ h @ lifted.T for h in hessians]
    expected = [float((pair[0] * pair[1]).sum()) for pair in (hessians, projected)]
    assert _appendix.layer_hessian_norms(net) == pytest.approx(expected, rel=1e-6)


def test_lemmas_with_centred_inputs_are_right_as_printed() -> None:
    """What fails in them is the mean of rectified inputs: with x - E[x] units are on half of the time, and (140) holds."""
    rectified = _appendix.draw(hs.Rng(0), n=48, d=2304, c=3, examples=600)
    centred = dataclasses.replace(rectified, u=rectified.u - _appendix.MEAN * rectified.first.sum(1))
    config = lemmas.Config(classes=3)
    errors = [lemmas._hessians(config, net)["B15"] for net in (rectified, centred)]
    assert errors[0] > 0.4
    assert errors[1] < 0.1


def test_moments_of_patches_are_those_of_the_decoupling() -> None:
    """Strides, paddings and all: the hooks see what `decouple` sees, without a Hessian."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(3, 2, 3, stride=2, padding=1),
        torch.nn.Flatten(), torch.nn.Linear(8, 3),
    ).double()  # fmt: skip
    x = torch.randn(7, 1, 4, 4, dtype=torch.float64)
    problem = hs.Problem.of(model, "cross_entropy", (x, torch.arange(7) % 3))
    found = _moments.input_moments(model, x, batch=3, kinds=("fc", "conv"))
    assert len(found) == 3
    for name, (mean, second) in found.items():
        d = hs.decouple(problem, name)
        alignment, ratio = _moments.closeness(mean, second)
        assert alignment == pytest.approx(d.alignment(), rel=1e-9)
        assert ratio == pytest.approx(d.spectral_ratio(), rel=1e-9)
        if d.positions == 1:
            centred = d.input_autocorrelation - torch.outer(d.input_mean, d.input_mean)
            bound = float(d.input_mean @ d.input_mean / torch.linalg.eigvalsh(centred)[-1])
            assert _moments.mean_bound(mean, second) == pytest.approx(bound, rel=1e-9)


def test_xavier_weights_are_within_his_range_and_biases_zero() -> None:
    """As the paper words its initialisation; torch's own, of the same draw, is left as it was."""
    model = _trained.untrained(Setting(width=40, depth=1, examples=10, xavier=True)).models[0]
    for layer in (part for part in model.modules() if isinstance(part, torch.nn.Linear)):
        edge = (6 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.95 * edge < float(layer.weight.detach().abs().max()) <= edge
        assert not layer.bias.any()
    plain = _trained.untrained(Setting(width=40, depth=1, examples=10)).models[0]
    assert all(bool(value.any()) for value in plain.parameters())
