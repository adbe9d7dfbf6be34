"""Layers that multiply their input by a weight: where they are, and how their inputs and outputs become positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from ..curvature import Problem
from ..errors import refuse


@dataclass(frozen=True, eq=False)
class Layer:
    """A Linear, Conv1d or Conv2d module: z_p = W x_p + b at every position p, with one input x per group of outputs."""

    name: str
    module: nn.Module

    @property
    def weight(self) -> str:
        """The name of the weight among the parameters."""
        return f"{self.name}.weight".lstrip(".")

    @property
    def bias(self) -> str:
        return f"{self.name}.bias".lstrip(".")

    @property
    def outputs(self) -> int:
        """m: rows of the weight."""
        return int(self.module.weight.shape[0])  # type: ignore[index]

    @property
    def inputs(self) -> int:
        """n: columns of the weight as a matrix."""
        return int(self.module.weight[0].numel())  # type: ignore[index]

    @property
    def groups(self) -> int:
        return 1 if isinstance(self.module, nn.Linear) else int(self.module.groups)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        return self.outputs * self.inputs

    def spread(self, z: Tensor, examples: int | None) -> Tensor:
        """The layer's output as `(examples, positions, m)`."""
        if isinstance(self.module, nn.Linear):
            return _split(z, _example_axis(z, examples), examples)
        batched = z if z.ndim == _batched_ndim(self.module) else z[None]
        return batched.flatten(2).transpose(1, 2)

    def gather(self, units: Tensor, like: Tensor, examples: int | None) -> Tensor:
        """The inverse of `spread`."""
        if isinstance(self.module, nn.Linear):
            return _join(units, like, _example_axis(like, examples))
        return units.transpose(1, 2).reshape(like.shape)

    def patches(self, x: Tensor, examples: int | None) -> Tensor:
        """The layer's input as `(examples, positions, groups, n)`: what the weight's rows of each group multiply."""
        module = self.module
        if isinstance(module, nn.Linear):
            return _split(x, _example_axis(x, examples), examples).unsqueeze(2)
        if x.ndim != _batched_ndim(module):
            x = x[None]
        mode = "constant" if module.padding_mode == "zeros" else str(module.padding_mode)
        x = F.pad(x, module._reversed_padding_repeated_twice, mode=mode)  # type: ignore[arg-type]
        kernel, stride, dilation = tuple(module.kernel_size), tuple(module.stride), tuple(module.dilation)  # type: ignore[arg-type]
        if isinstance(module, nn.Conv1d):
            x, kernel, stride, dilation = x.unsqueeze(2), (1, *kernel), (1, *stride), (1, *dilation)
        columns = F.unfold(x, kernel, dilation=dilation, stride=stride)
        return columns.transpose(1, 2).reshape(len(x), -1, self.groups, self.inputs)


def find_layer(problem: Problem, name: str) -> Layer:
    """The layer called `name`, refused unless the weight is its own and is a plain parameter."""
    modules = dict(problem.model.named_modules(remove_duplicate=False))
    if name not in modules:
        refuse("the layer must be a module of the model", f"{name!r}", f"Layers here: {_shown(layer_names(problem))}.")
    module = modules[name]
    if not isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
        refuse(
            "the layer must multiply its input by a weight (Linear, Conv1d, Conv2d)",
            f"{name!r}, a {type(module).__name__}",
            f"Layers here: {_shown(layer_names(problem))}.",
        )
    weight = module._parameters.get("weight")
    if weight is None:
        refuse(
            "the layer's weight must be a plain parameter",
            f"{name!r}, whose weight is computed from other parameters or missing",
            "Remove the parametrisation, for example with torch.nn.utils.parametrize.remove_parametrizations.",
        )
    users = [
        f"{path}.{local}"
        for path, other in modules.items()
        for local, p in other._parameters.items()
        if p is weight and other is not module
    ]
    if users:
        refuse(
            "the layer's weight must belong to this layer alone (its Hessian is not Σ M ⊗ x xᵀ otherwise)",
            f"{name!r}, tied to {_shown(users)}",
            "Use hs.Hessian(problem).block(...) for tied weights.",
        )
    return Layer(name, module)


def layer_names(problem: Problem) -> list[str]:
    """Every Linear and convolution of the model, in its order."""
    kinds = nn.Linear | nn.Conv1d | nn.Conv2d
    return [name for name, module in problem.model.named_modules() if isinstance(module, kinds)]


def decouplable_layers(problem: Problem) -> list[str]:
    """Those whose weight is selected, and that give every output the same inputs."""
    layers = [Layer(name, problem.model.get_submodule(name)) for name in layer_names(problem)]
    return [layer.name for layer in layers if layer.groups == 1 and layer.weight in problem.space.names]


def _shown(names: list[str]) -> str:
    return (", ".join(names[:12]) + (", ..." if len(names) > 12 else "")) or "none"


def _batched_ndim(module: nn.Module) -> int:
    return 3 if isinstance(module, nn.Conv1d) else 4


def _example_axis(t: Tensor, examples: int | None) -> int:
    """Where the examples are: first unless only a later axis has their number."""
    if examples is None or t.ndim < 3 or t.shape[0] % examples == 0:
        return 0
    return next((axis for axis in range(1, t.ndim - 1) if t.shape[axis] == examples), 0)


def _split(t: Tensor, axis: int, examples: int | None) -> Tensor:
    t = t[None] if t.ndim == 1 else t.movedim(axis, 0)
    lead = examples if examples is not None and t.shape[0] % examples == 0 else t.shape[0]
    return t.reshape(lead, -1, t.shape[-1])


def _join(units: Tensor, like: Tensor, axis: int) -> Tensor:
    if like.ndim == 1:
        return units.reshape(like.shape)
    moved = like.movedim(axis, 0)
    return units.reshape(moved.shape).movedim(0, axis)
