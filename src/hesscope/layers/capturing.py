"""One forward pass that also shows what layers were given, with their outputs as variables of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..curvature.losses.base import OutputLoss
from ..curvature.problem import Problem, ScalarLoss
from .kinds import BY_FUNCTION, Kind, Roles, attention


@dataclass(eq=False)
class CapturedLayer:
    """One call of a layer in one forward pass: its input as it came, and its output as the variable `z`."""

    kind: Kind
    weight: str | None  # names of the parameters in their roles; None where there is none
    bias: str | None
    roles: Roles
    z: Tensor
    version: int  # of the input when it was seen: what changes it afterwards would change what we hold

    @property
    def name(self) -> str:
        """The layer by the name of its parameters' module, or by the parameter itself where that is bare."""
        return layer_name(self.weight or self.bias or "")

    @property
    def intact(self) -> bool:
        """Whether the input is still what the layer was given."""
        return self.roles.x._version == self.version


def layer_name(parameter: str) -> str:
    """`fc1` for `fc1.weight`; `attention.in_proj` for the packed weight of an attention module."""
    path, _, local = parameter.rpartition(".")
    stem = local.removesuffix("weight").removesuffix("bias").rstrip("_")
    return ".".join(part for part in (path, stem) if part)


@dataclass
class Capture:
    """The loss terms of one batch as a function of the outputs of the captured layers, in the order they ran.

    `uses` counts every use of a parameter that can carry a derivative; a layer is what uses its own exactly once.
    """

    terms: OutputLoss | ScalarLoss
    layers: list[CapturedLayer]
    uses: dict[str, int]
    recomputed: frozenset[str] = frozenset()  # parameters of layers that run again in the backward pass

    def of(self, name: str) -> list[CapturedLayer]:
        """The calls of one layer."""
        return [layer for layer in self.layers if layer.name == name]

    def output(self) -> tuple[Tensor, Tensor | None]:
        """What to differentiate, and the gradient of the loss in it (None for a loss that is one number)."""
        if isinstance(self.terms, OutputLoss):
            return self.terms.f, self.terms.output_gradient()
        return self.terms.total, None

    def gradients(self, cotangent: Tensor | None = None, create_graph: bool = False) -> list[Tensor]:
        """∂ℓ/∂z of every captured layer, or (∂f/∂z)ᵀ applied to another cotangent of the outputs."""
        output, own = self.output()
        if isinstance(self.terms, OutputLoss) and cotangent is None:
            cotangent = self.terms.differentiable_output_gradient() if create_graph else own
        zs = [layer.z for layer in self.layers]
        if not output.requires_grad or not zs:
            return [torch.zeros_like(z) for z in zs]
        found = torch.autograd.grad(
            output, zs, cotangent, retain_graph=True, create_graph=create_graph, materialize_grads=True
        )
        return list(found)


def capture(
    problem: Problem,
    batch: Any,
    names: Collection[str] | None = None,
    *,
    shifts: Mapping[str, Tensor] | None = None,
    parameters: Mapping[str, Tensor] | None = None,
) -> Capture:
    """Run model and loss on one batch; `names` of layers to capture (default: all that are understood).

    Parameters are constants unless given. `shifts` are added to the outputs of the layers they name.
    """
    # Frozen parameters too: a frozen weight with a trained bias is a layer, and its own Hessian can be asked for.
    values = {**every_parameter(problem), **(parameters or {})}
    mode = _Seeing(values, names, shifts or {})
    with torch.inference_mode(False), torch.enable_grad(), mode:
        terms = problem.evaluate(batch, values)
    return Capture(terms, mode.layers, mode.uses, frozenset(mode.recomputed))


def every_parameter(problem: Problem) -> dict[str, Tensor]:
    """Selected and frozen parameters by name, as constants."""
    own = {name for name, _ in problem.model.named_parameters()}
    frozen = {name: t.detach() for name, t in problem._fixed.items() if name in own}
    return {**frozen, **{name: t.detach() for name, t in problem.parameters.items()}}


class _Seeing(TorchFunctionMode):
    """Watches every torch function for the parameters it is given, and takes apart the calls that are layers."""

    def __init__(
        self, parameters: Mapping[str, Tensor], names: Collection[str] | None, shifts: Mapping[str, Tensor]
    ) -> None:
        super().__init__()
        self._parameters = dict(parameters)  # held, so that no other tensor can take an id
        self._name_of = {id(t): name for name, t in parameters.items()}
        self._wanted, self._shifts = names, shifts
        self.layers: list[CapturedLayer] = []
        self.uses: dict[str, int] = dict.fromkeys(parameters, 0)
        self.recomputed: set[str] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        named = [self._name_of[id(t)] for t in _tensors((*args, *kwargs.values())) if id(t) in self._name_of]
        if not named:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:
                taken_apart = attention(args, kwargs)
            if taken_apart is not None:
                return taken_apart
        kind = BY_FUNCTION.get(func)
        roles = None if kind is None else kind.roles(func, args, kwargs)
        if kind is not None and roles is not None:
            return self._layer(kind, roles, named, func, args, kwargs)
        result = func(*args, **kwargs)
        if func is Tensor.detach:
            return result  # carries no derivative
        # A shape or a device is no use, and neither is a cast that gives the parameter back; a change in place is.
        changes = getattr(func, "__name__", "").rstrip("_") + "_" == getattr(func, "__name__", "")
        if changes or any(id(t) not in self._name_of for t in _tensors([result])):
            self._count(named)
        return result

    def _layer(
        self,
        kind: Kind,
        roles: Roles,
        named: Sequence[str],
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Tensor:
        out: Tensor = func(*args, **kwargs)
        self._count(named)
        weight, bias = (None if t is None else self._name_of.get(id(t)) for t in (roles.weight, roles.bias))
        if len(named) != len([n for n in (weight, bias) if n]):
            return out  # a parameter as the input, or in two roles
        seen = CapturedLayer(kind, weight, bias, roles, out, roles.x._version)
        if self._wanted is not None and seen.name not in self._wanted:
            return out
        if torch._C._functorch.is_functorch_wrapped_tensor(out):
            return out  # inside vmap, grad or jvp: what is seen there is none of the tensors outside
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            self.recomputed.update(named)
            return out  # a checkpointed part runs again in the backward pass, and must be the same then
        z = out if out.requires_grad else out.detach().requires_grad_()
        seen.z = z
        self.layers.append(seen)
        shift = self._shifts.get(seen.name)
        # A copy, so that what is done in place to the output later is not done to z.
        return z.clone() if shift is None else z + shift

    def _count(self, named: Sequence[str]) -> None:
        for name in named:
            self.uses[name] += 1


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
