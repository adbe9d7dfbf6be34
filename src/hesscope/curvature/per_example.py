"""Squared per-example gradients of a row-wise projection of the outputs, layer by layer, without forming them.

For a linear layer the gradient of example n is δ_n x_nᵀ: its squared norm is |δ_n|²|x_n|², and the squares summed over
examples are (δ∘δ)ᵀ(x∘x). One backward pass to the layers' outputs (not to their weights) gives every δ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .data import examples_in, map_tensors
from .losses.base import OutputLoss
from .problem import Problem

_CHUNK_BYTES = 64_000_000
_PATCHES_AT_A_TIME = 128  # examples whose unfolded images are held at once


@dataclass
class _Seen:
    """What one module was given and returned in one forward pass."""

    module: nn.Module
    names: dict[str, str]  # parameter of the module -> its name in the problem
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


class PerExample:
    """The layers of a problem whose per-example squared gradients are cheap; `uncovered` names the other parameters."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        owners: dict[int, list[tuple[str, nn.Module, str]]] = {}
        for path, module in problem.model.named_modules(remove_duplicate=False):
            for local, p in module._parameters.items():
                if p is not None:
                    owners.setdefault(id(p), []).append((path, module, local))
        full_name = {id(p): name for name, p in problem.model.named_parameters()}
        self._modules: dict[nn.Module, dict[str, str]] = {}
        for key, places in owners.items():
            name = full_name[key]
            _, module, local = places[0]
            if name in problem.parameters and len(places) == 1 and _accumulator(module) is not None:
                self._modules.setdefault(module, {})[local] = name
        covered = {name for names in self._modules.values() for name in names.values()}
        self.uncovered = tuple(name for name in problem.space.names if name not in covered)

    def drop(self, module: nn.Module) -> None:
        """Stop covering a module, for example one that runs twice."""
        dropped = {*self._modules.pop(module).values(), *self.uncovered}
        self.uncovered = tuple(name for name in self.problem.space.names if name in dropped)

    @contextmanager
    def _watching(self) -> Iterator[dict[nn.Module, _Seen]]:
        seen = {module: _Seen(module, names) for module, names in self._modules.items()}

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            record = seen[module]
            if not output.requires_grad:
                output = output.requires_grad_()  # the first layers: their outputs are where the chain begins
            record.inputs.append(args[0].detach())
            record.outputs.append(output)
            return output

        handles = [module.register_forward_hook(hook) for module in seen]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()

    def pieces(self, batch: Any) -> Iterator[Any]:
        """The batch in parts small enough for what the layers hold."""
        size = examples_in(batch)
        step = _PATCHES_AT_A_TIME if any(isinstance(m, nn.Conv2d) for m in self._modules) else size
        if size is None or step is None or size <= step:
            yield batch
            return
        for start in range(0, size, step):
            yield map_tensors(batch, lambda t, at=start: t[at : at + step])  # type: ignore[misc]

    def trace_batch(self, batch: Any) -> tuple[OutputLoss, dict[nn.Module, _Seen]]:
        """One forward pass in which only the layers' outputs carry a graph."""
        with self._watching() as seen, torch.enable_grad():
            rows = self.problem.evaluate(batch, {k: t.detach() for k, t in self.problem.parameters.items()})
        assert isinstance(rows, OutputLoss)
        for module, record in seen.items():
            if len(record.outputs) > 1:
                self.drop(module)  # its gradient is a sum over its runs
                return self.trace_batch(batch)
        return rows, seen

    def independent(self, batch: Any) -> bool:
        """Whether the outputs of one example depend on that example alone, as far as the layers' outputs tell."""
        rows, seen = self.trace_batch(batch)
        outputs = [record.outputs[0] for record in seen.values() if record.outputs]
        if not outputs or any(len(output) != (examples_in(batch) or -1) for output in outputs):
            return False
        first = torch.zeros_like(rows.f)
        first[0] = 1.0
        deltas = torch.autograd.grad(rows.f, outputs, first, allow_unused=True)
        touched = torch.zeros(len(outputs[0]), dtype=torch.bool, device=rows.f.device)
        for delta in deltas:
            if delta is not None:
                touched |= delta.flatten(1).ne(0).any(-1)
        return int(touched.sum()) <= 1

    def squares(
        self, rows: OutputLoss, seen: dict[nn.Module, _Seen], cotangents: Iterable[Tensor], entries: bool
    ) -> dict[str, Tensor]:
        """Σ over `cotangents` of squared per-example gradients: their norms `(N,)`, or with `entries` summed over examples."""
        records = [record for record in seen.values() if record.outputs]
        outputs = [record.outputs[0] for record in records]
        sums = [_make(record, entries) for record in records]
        for cotangent in cotangents:
            deltas = torch.autograd.grad(rows.f, outputs, cotangent, retain_graph=True, allow_unused=True)
            for total, delta in zip(sums, deltas, strict=True):
                if delta is not None:
                    total.add(delta)
        return {
            record.names[local]: value
            for record, total in zip(records, sums, strict=True)
            for local, value in total.result().items()
            if local in record.names
        }


def _accumulator(module: nn.Module) -> type[_Squares] | None:
    if type(module) is nn.Linear:
        return _LinearSquares
    if type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str):
        return _ConvSquares
    if type(module) in (nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm):
        return _NormalisationSquares
    return None


def _make(record: _Seen, entries: bool) -> _Squares:
    kind = _accumulator(record.module)
    assert kind is not None
    return kind(record.module, record.inputs[0], entries)


class _Squares:
    """Sums of squared gradients of one layer over several backward passes."""

    def __init__(self, module: Any, x: Tensor, entries: bool) -> None:
        self.module, self.x, self.entries = module, x, entries
        self.weight: Tensor | float = 0.0
        self.bias: Tensor | float = 0.0

    def add(self, delta: Tensor) -> None:
        raise AssertionError("accumulators define add")

    def result(self) -> dict[str, Tensor]:
        found = {"weight": self.weight, "bias": self.bias}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def _reduce(self, squares: Tensor) -> Tensor:
        """Squares of shape `(N, ...)`: summed over examples, or to one number per example."""
        return squares.sum(0) if self.entries else squares.flatten(1).sum(-1)


class _LinearSquares(_Squares):
    def add(self, delta: Tensor) -> None:
        if self.x.ndim == 2:
            self.bias = self.bias + delta.square()  # everything else waits for result()
            return
        x = self.x.reshape(len(self.x), -1, self.x.shape[-1])
        d = delta.reshape(len(delta), -1, delta.shape[-1])
        self.bias = self.bias + self._reduce(d.sum(1).square())
        self.weight = self.weight + _summed_outer_squares(d.transpose(1, 2), x, self.entries)

    def result(self) -> dict[str, Tensor]:
        if self.x.ndim != 2 or not isinstance(self.bias, Tensor):
            return super().result()
        squares = self.bias
        if self.entries:
            return {"weight": squares.T @ self.x.square(), "bias": squares.sum(0)}
        norms = squares.sum(-1)
        return {"weight": norms * self.x.square().sum(-1), "bias": norms}


class _ConvSquares(_Squares):
    def __init__(self, module: nn.Conv2d, x: Tensor, entries: bool) -> None:
        super().__init__(module, x, entries)
        padding = module.padding
        assert not isinstance(padding, str)
        patches = F.unfold(x, module.kernel_size, module.dilation, padding, module.stride)
        self.patches = patches.reshape(len(x) * module.groups, -1, patches.shape[-1]).transpose(1, 2)
        self.waiting: list[Tensor] = []  # few channels make poor matrix products; those of several passes together do

    def add(self, delta: Tensor) -> None:
        flat = delta.flatten(2)
        self.bias = self.bias + self._reduce(flat.sum(-1).square())
        self.waiting.append(flat.reshape(self.patches.shape[0], -1, flat.shape[-1]))
        if len(self.waiting) * flat.numel() * flat.element_size() > _CHUNK_BYTES:
            self._multiply()

    def result(self) -> dict[str, Tensor]:
        self._multiply()
        return super().result()

    def _multiply(self) -> None:
        if not self.waiting:
            return
        outer = torch.bmm(torch.cat(self.waiting, 1), self.patches).square_()
        squares = outer.reshape(len(outer), len(self.waiting), -1, outer.shape[-1]).sum(1)
        self.weight = self.weight + self._reduce(squares.reshape(len(self.x), *self.module.weight.shape))
        self.waiting = []


class _NormalisationSquares(_Squares):
    def __init__(self, module: Any, x: Tensor, entries: bool) -> None:
        super().__init__(module, x, entries)
        if isinstance(module, nn.LayerNorm):
            self.unit = F.layer_norm(x, module.normalized_shape, None, None, module.eps)
        elif isinstance(module, nn.GroupNorm):
            self.unit = F.group_norm(x, module.num_groups, None, None, module.eps)
        else:
            self.unit = F.batch_norm(x, module.running_mean, module.running_var, None, None, False, 0.0, module.eps)

    def add(self, delta: Tensor) -> None:
        self.weight = self.weight + self._reduce(self._summed(self.unit * delta).square())
        self.bias = self.bias + self._reduce(self._summed(delta).square())

    def _summed(self, t: Tensor) -> Tensor:
        """Over the positions that share the layer's weight: shape `(N, *weight)`."""
        if isinstance(self.module, nn.LayerNorm):
            return t.reshape(len(t), -1, *self.module.normalized_shape).sum(1)
        return t.flatten(2).sum(-1) if t.ndim > 2 else t


def _summed_outer_squares(left: Tensor, right: Tensor, entries: bool) -> Tensor:
    """Squares of Σ_t left[n, :, t] right[n, t, :]: per example, or per entry summed over examples."""
    n, out, length = left.shape
    if not entries and length * length < out * right.shape[-1]:
        gram = torch.bmm(left.transpose(1, 2), left) * torch.bmm(right, right.transpose(1, 2))
        return gram.flatten(1).sum(-1)
    step = max(1, _CHUNK_BYTES // (out * right.shape[-1] * left.element_size()))
    pieces = []
    for start in range(0, n, step):
        squared = torch.bmm(left[start : start + step], right[start : start + step]).square_()
        pieces.append(squared.sum(0, keepdim=True) if entries else squared.flatten(1).sum(-1))
    return torch.cat(pieces).sum(0) if entries else torch.cat(pieces)
