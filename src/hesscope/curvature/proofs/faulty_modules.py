"""Which module has no second derivative, or a wrong one: each is tried alone, on what it was really given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...rng import Rng
from ..data import map_tensors
from ..models.conditions import running
from ..models.functional_call import call_at
from ..problem import Problem
from .differences import best_gap

TOLERANCE = 1e-4


def find_faulty_modules(problem: Problem) -> tuple[str, ...]:
    """The deepest modules whose own second derivative is missing or disagrees with finite differences, by name."""
    failures: dict[str, str] = {}
    for name, module, args, kwargs, state in _runs(problem):
        reason = _fault(module, args, kwargs, state)
        if reason is not None:
            failures[name] = f"{name or '(the model)'} ({type(module).__name__}): {reason}"
    # A container fails with its content: name only what has no failing part of its own.
    deepest = [n for n in failures if not any(m != n and m.startswith(f"{n}." if n else "") for m in failures)]
    return tuple(failures[n] for n in deepest)


def _runs(problem: Problem) -> Iterator[tuple[str, nn.Module, tuple[Any, ...], dict[str, Any], dict[str, Tensor]]]:
    seen: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = {}
    with _recording(problem.model, seen), torch.no_grad():
        problem.evaluate(next(iter(problem.batches)), problem.parameters)
    everything = {**problem._fixed, **problem.parameters}
    for name, (module, args, kwargs) in seen.items():
        prefix = f"{name}." if name else ""
        state = {key.removeprefix(prefix): value for key, value in everything.items() if key.startswith(prefix)}
        yield name, module, args, kwargs, state


@contextmanager
def _recording(model: nn.Module, seen: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]) -> Iterator[None]:
    def hook_for(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # Copies: a module that works in place would change what it was given.
            seen.setdefault(name, (module, map_tensors(args, Tensor.clone), map_tensors(kwargs, Tensor.clone)))

        return hook

    handles = [m.register_forward_pre_hook(hook_for(n), with_kwargs=True) for n, m in model.named_modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _fault(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], state: dict[str, Tensor]) -> str | None:
    inputs = {i: a for i, a in enumerate(args) if isinstance(a, Tensor) and a.is_floating_point()}
    weights = {n: t for n, t in state.items() if t.is_floating_point() and n in dict(module.named_parameters())}
    if not inputs and not weights:
        return None
    # A little beside what was given, where no unit sits exactly on a kink.
    given_values = (*inputs.values(), *weights.values())
    variables = [_moved(t, i).requires_grad_() for i, t in enumerate(given_values)]

    def gradient(values: list[Tensor], create_graph: bool) -> list[Tensor]:
        given = list(args)
        for place, value in zip(inputs, values, strict=False):
            given[place] = value.clone()  # a leaf cannot be changed in place
        changed = dict(zip(weights, values[len(inputs) :], strict=True))
        with running(module, wide=False):
            output = call_at(module, {**state, **changed}, tuple(given), kwargs)
        tensors = [t for t in (output if isinstance(output, tuple | list) else [output]) if isinstance(t, Tensor)]
        # A cubic projection: its slope depends on the output, so that every part of the second derivative shows.
        total = sum(
            (_projection(t) for t in tensors if t.is_floating_point()),
            start=torch.zeros((), dtype=torch.float64, device="cpu"),
        )
        if not total.requires_grad:
            return [torch.zeros_like(v) for v in values]
        return list(
            torch.autograd.grad(total, values, create_graph=create_graph, allow_unused=True, materialize_grads=True)
        )

    try:
        first = gradient(variables, True)
        direction = [_noise(v, i) for i, v in enumerate(variables)]
        live = [(g, d) for g, d in zip(first, direction, strict=True) if g.requires_grad]
        if not live:
            return None
        product = torch.autograd.grad(
            [g for g, _ in live], variables, [d for _, d in live], allow_unused=True, materialize_grads=True
        )
    except RuntimeError as error:
        return f"no second derivative ({error})"

    def beside(step: float) -> list[Tensor]:
        moved = [(v + step * d).detach().requires_grad_() for v, d in zip(variables, direction, strict=True)]
        return [_flat(gradient(moved, False))]

    gap = best_gap(beside, [_flat(product)])
    return f"its second derivative is off by {gap:.1e}" if gap > TOLERANCE else None


def _moved(tensor: Tensor, index: int) -> Tensor:
    size = max(float(tensor.detach().double().norm()) / max(tensor.numel(), 1) ** 0.5, 1e-2)
    return torch.add(tensor.detach(), _noise(tensor, 100 + index), alpha=1e-3 * size)


def _projection(t: Tensor) -> Tensor:
    weights = _noise(t, 7)
    return (weights * t).sum().double() + 0.1 * (weights * t * t * t).sum().double()


def _noise(like: Tensor, index: int) -> Tensor:
    generator = Rng(0).child("faulty modules", index).torch()
    return torch.randn(like.shape, generator=generator, dtype=torch.float64, device="cpu").to(like)


def _flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().double().reshape(-1) for t in tensors])
