"""Recurrent layers whose fast kernels have no second derivative, as cuDNN's: played on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hesscope as hs
from hesscope.curvature.models.recurrent_kernels import recurrent_note


class OnceOnly(torch.autograd.Function):
    """The identity, in a way that cannot be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.clone()


class FastGRU(nn.GRU):
    """While cuDNN is enabled its output is that of a kernel with one derivative."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        out, last = super().forward(input, hx)
        return (OnceOnly.apply(out) if torch.backends.cudnn.enabled else out), last


class Reader(nn.Module):
    def __init__(self, kind: type[nn.GRU]) -> None:
        super().__init__()
        self.rnn, self.out = kind(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        return self.out(self.rnn(x)[0][:, -1])


def problem_of(kind: type[nn.GRU]) -> hs.Problem:
    torch.manual_seed(0)
    return hs.Problem.of(Reader(kind).double(), "cross_entropy", (torch.randn(12, 5, 3).double(), torch.arange(12) % 2))


def test_kernels_without_a_second_derivative_give_way() -> None:
    """Simulated: such a kernel runs only while torch.backends.cudnn.enabled says so."""
    assert torch.backends.cudnn.enabled
    found, truth = hs.eigenpairs(problem_of(FastGRU), 3), hs.eigenpairs(problem_of(nn.GRU), 3)
    assert found.values == pytest.approx(truth.values, rel=1e-9)
    assert torch.backends.cudnn.enabled


def test_results_on_a_gpu_say_so() -> None:
    assert "cuDNN's have no second derivative" in recurrent_note(Reader(nn.GRU), torch.device("cuda"))
    assert recurrent_note(Reader(nn.GRU), torch.device("cpu")) == ""
    assert recurrent_note(nn.Linear(2, 2), torch.device("cuda")) == ""
