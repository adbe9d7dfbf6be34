"""Every result says how it was computed and what was verified, and none is made from wrong derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.analysis.layers import predict
from hesscope.errors import DerivativeError
from hesscope.partition import Partition

X = torch.randn(24, 4, generator=hs.Rng(1).torch(), dtype=torch.float64)
Y = torch.arange(24) % 3


def network(middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), middle, nn.Linear(5, 3)).double()


def of(middle: nn.Module) -> hs.Problem:
    return hs.Problem.of(network(middle), nn.CrossEntropyLoss(), (X, Y))


def overlap(problem: hs.Problem) -> Any:
    other = problem.at({name: value * 1.1 for name, value in problem.parameters.items()})
    return hs.model_overlap([problem, other], "0", k=2)


RESULTS: dict[str, Callable[[hs.Problem], Any]] = {
    "trace": hs.trace,
    "diagonal": hs.diagonal,
    "row norms": hs.row_norms,
    "eigenpairs": lambda p: hs.eigenpairs(p, 2),
    "density": lambda p: hs.spectral_density(p, 2, steps=5),
    "block norms": hs.block_norms,
    "norms of estimates": lambda p: hs.block_norms(p, "layer", method="stochastic"),
    "heat map": hs.heat_map,
    "block spectra": hs.block_spectra,
    "stripes": hs.circulant_score,
    "comparison": lambda p: hs.decouple(p, "0").compare(2),
    "errors": lambda p: hs.decouple(p, "0").errors(),
    "factors": lambda p: hs.decouple(p, "0"),
    "prediction": lambda p: predict(p, list(hs.decouple_layers(p).values()), 2),
    "full approximation": lambda p: hs.approximate_full_eigenpairs(p, 2),
    "logit gradients": lambda p: hs.logit_gradients(p, "0"),
    "overlap of models": overlap,
}
OUTPUTS_ONLY: dict[str, Callable[[hs.Problem], Any]] = {
    "output norms": hs.output_block_norms,
    "predicted eigenspace": lambda p: hs.predicted_output_eigenspace(p, "0"),
}
BARE: dict[str, Callable[[hs.Problem], Any]] = {
    "dense": hs.dense_hessian,
    "layer": lambda p: hs.layer_hessian(p, "0").dense(),
    "known Gauss-Newton factors": lambda p: hs.layer_hessian(p, "0", curvature="gauss_newton").dense(),
}


@pytest.mark.parametrize("which", RESULTS | OUTPUTS_ONLY)
def test_every_result_says_what_was_verified(which: str) -> None:
    found = (RESULTS | OUTPUTS_ONLY)[which](of(nn.ReLU()))
    assert "verified on" in found.check
    assert getattr(found, "method", "said elsewhere")


class Slope(torch.autograd.Function):
    """sin x, whose gradient is right and forgets that it depends on x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * x.detach().cos()


class Forgetful(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Slope.apply(x)
        return out


@pytest.mark.parametrize("which", RESULTS | BARE)
def test_no_structure_is_built_on_a_wrong_second_derivative(which: str) -> None:
    """To double backward, nothing curves behind the first layer: a proof by double backward alone believes that."""
    with pytest.raises(DerivativeError, match="every derivative must be right"):
        (RESULTS | BARE)[which](of(Forgetful()))


def test_unchecked_operators_are_used_as_they_are_and_say_so() -> None:
    problem = of(Forgetful())
    H = hs.Hessian(problem, unchecked=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = hs.block_norms(H, "layer"), hs.trace(H), hs.heat_map(H, 5)
        assert all("UNCHECKED" in one.check for one in found)
        assert hs.dense_hessian(H).shape == (43, 43)
    # Rows of a layer that no wrong derivative reaches stay right.
    assert hs.trace(hs.GaussNewton(problem)).value > 0
    assert hs.block_norms(hs.GaussNewton(problem), Partition.by("layer", problem)).norms.shape == (2, 2)
    assert "verified on" in hs.decouple(problem, "2").check
