"""Random quadratics under real torch optimisers whose denominators are held: the linear map of one step, measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, optim

import hesscope as hs

FROZEN = 1 - 1e-12  # a second moment that keeps its value over thousands of steps
LATE = 10**9  # a step at which bias corrections stand still


class Quadratic(nn.Module):
    """½ θᵀGθ in three tensors; G is positive definite and couples them."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.a = nn.Parameter(torch.zeros(3, 2, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(4, dtype=torch.float64))
        self.c = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
        root = torch.randn(12, 12, generator=draw, dtype=torch.float64)
        self.curvature = root @ root.T / 12 + 0.05 * torch.eye(12, dtype=torch.float64)

    def flat(self) -> Tensor:
        return torch.cat([p.reshape(-1) for p in self.parameters()])

    def value(self) -> Tensor:
        return 0.5 * self.flat() @ self.curvature @ self.flat()


def problem_of(model: Quadratic) -> hs.Problem:
    return hs.Problem.of(model, lambda m: m.value())


def prepare(optimizer: optim.Optimizer, model: Quadratic, steps: int = LATE) -> None:
    """One step from a random gradient, then second moments drawn at random and the count of steps set."""
    draw = torch.Generator().manual_seed(7)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=draw, dtype=p.dtype)
    optimizer.step()
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state[p]
            for key in list(state):
                if key in ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "acc_delta", "exp_inf"):
                    state[key] = 0.1 + torch.rand(p.shape, generator=draw, dtype=p.dtype)
                    if "betas" in group and key != "exp_inf":
                        state[key] *= 1 - group["betas"][1] ** steps
                if key == "step":
                    state[key] = torch.tensor(float(steps), dtype=torch.float64)
                if key == "mu_product":
                    state[key] = torch.tensor(0.0)
                if key == "grad_avg":
                    state[key] = 0.1 * torch.rand(p.shape, generator=draw, dtype=p.dtype)
            if "max_exp_avg_sq" in state:
                state["max_exp_avg_sq"] += state["exp_avg_sq"]
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()


def step_map(optimizer: optim.Optimizer, model: Quadratic, size: float = 1e-7) -> Tensor:
    """The matrix that takes (θ, momentum) through one real step, column by column, at deviations so small that
    second moments do not feel them."""
    parameters = list(model.parameters())
    kept = {
        p: {k: v.clone() if isinstance(v, Tensor) else v for k, v in optimizer.state[p].items()} for p in parameters
    }
    n = sum(p.numel() for p in parameters)
    columns = []
    for index in range(2 * n):
        unit = torch.zeros(2 * n, dtype=torch.float64)
        unit[index] = size
        _put(optimizer, parameters, kept, unit, n)
        gradient = model.curvature @ unit[:n]
        for p, g in zip(parameters, torch.split(gradient, [p.numel() for p in parameters]), strict=True):
            p.grad = g.view_as(p).clone()
        optimizer.step()
        columns.append(_get(optimizer, parameters) / size)
    _put(optimizer, parameters, kept, torch.zeros(2 * n, dtype=torch.float64), n)
    return torch.stack(columns, 1)


def radius(optimizer: optim.Optimizer, model: Quadratic, factor: float) -> float:
    """The spectral radius of that map with all rates multiplied."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = factor * rate
    found = float(torch.linalg.eigvals(step_map(optimizer, model)).abs().max())
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    return found


def _buffer(state: dict[str, Any]) -> str | None:
    return next((key for key in ("momentum_buffer", "exp_avg") if state.get(key) is not None), None)


def _put(optimizer: Any, parameters: list[Any], kept: Any, values: Tensor, n: int) -> None:
    start = 0
    for p in parameters:
        state = {k: v.clone() if isinstance(v, Tensor) else v for k, v in kept[p].items()}
        place = slice(start, start + p.numel())
        p.data.copy_(values[:n][place].view_as(p))
        key = _buffer(state)
        if key is not None:
            state[key].copy_(values[n:][place].view_as(p))
        optimizer.state[p] = state
        start += p.numel()


def _get(optimizer: Any, parameters: list[Any]) -> Tensor:
    theta = [p.detach().reshape(-1) for p in parameters]
    buffers = []
    for p in parameters:
        key = _buffer(optimizer.state[p])
        buffers.append(torch.zeros(p.numel(), dtype=p.dtype) if key is None else optimizer.state[p][key].reshape(-1))
    return torch.cat([*theta, *buffers]).clone()


Factory = Callable[[Quadratic], optim.Optimizer]
