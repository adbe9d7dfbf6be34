"""The Hessian of the loss the user really trains: model, loss, data and parameters in one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import HesscopeError, refuse
from ..space import ParameterSpace
from .data import Batches, as_batches, examples_in, first_examples, joined, to_device
from .determinism import eval_mode, explain_forward_error, random_state_kept, refuse_random_modules, same_value
from .engines.memory import MemoryBudget, parse_bytes
from .functional_call import call_at
from .losses.base import OutputLoss
from .losses.parse import SeparableLoss, parse
from .plain_operations import plain_operations

Forward = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
_TARGET_KEYS = ("labels", "label", "targets", "target", "y")


@dataclass
class ScalarLoss:
    """A loss that comes as one number: (sum, count) of a batch, connected to the parameters."""

    total: Tensor
    count: float


class _Runner(nn.Module):
    """Runs model and loss on one batch, so that parameters can be swapped in by name below `model.`."""

    def __init__(self, model: nn.Module, loss: SeparableLoss | Callable[..., Any], forward: Forward | None) -> None:
        super().__init__()
        self.model, self.loss, self.split = model, loss, forward or _default_forward
        self.traced = False

    def forward(self, batch: Any) -> OutputLoss | ScalarLoss:
        if isinstance(self.loss, SeparableLoss):
            return self.loss.rows(*self.split(self.model, batch), traced=self.traced)
        result = self.loss(self.model) if batch is None else self.loss(self.model, batch)
        if isinstance(result, Tensor) and batch is None:
            result = (result, 1.0)
        if not (
            isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor) and result[0].ndim == 0
        ):
            refuse(
                "loss(model, batch) must return (sum, count): a scalar tensor and a number",
                f"{type(result).__name__}",
                "Return the summed loss of the batch and what a mean divides by.",
            )
        return ScalarLoss(result[0], float("nan") if self.traced else float(result[1]))


class Problem:
    """A loss L(θ) = Σ_batches sum / Σ_batches count (or the plain sum), with θ the selected parameters.

    Parameters and buffers are copied when the problem is made: training on afterwards does not change it.
    """

    def __init__(
        self,
        runner: _Runner,
        batches: Batches,
        space: ParameterSpace,
        parameters: dict[str, Tensor],
        fixed: dict[str, Tensor],
        *,
        freeze: bool,
        memory: float | str | None,
        distributed: bool,
        batch_dtype: torch.dtype | None = None,
    ) -> None:
        self._runner, self.batches, self.space = runner, batches, space
        self.parameters, self._fixed = parameters, fixed
        self.freeze, self.distributed, self._batch_dtype = freeze, distributed, batch_dtype
        first = next(iter(parameters.values()))
        self.device = first.device
        self.dtype = first.dtype
        for tensor in parameters.values():
            self.dtype = torch.promote_types(self.dtype, tensor.dtype)
        if self.dtype in (torch.bfloat16,):
            self.dtype = torch.float32
        self.memory_budget = MemoryBudget(parse_bytes(memory, self.device))
        self.verdict: Any = None  # what hs.check found, once it has run
        self.proofs: dict[str, Any] = {}  # what was proven of the derivatives, by the first products

    @staticmethod
    def of(
        model: nn.Module,
        loss: Any,
        data: Any = None,
        params: str | Iterable[str] = "*",
        *,
        forward: Forward | None = None,
        freeze: bool = False,
        batch_size: int = 1024,
        memory: float | str | None = None,
        distributed: bool = False,
    ) -> Problem:
        """The problem of a model, a loss and data, in the parameters that `params` globs select.

        `loss`: a torch loss module (its reduction, class weights, ignore_index and label smoothing are kept), a name
        ("cross_entropy", "mse", "squared_error", "huber", "bce"), or `loss(model, batch) -> (sum, count)`.
        `data`: `(inputs, targets)`, a Dataset, a DataLoader, an iterable of batches, or None when the loss needs none.
        `forward(model, batch) -> (outputs, targets)`: how to run one batch, where `model(inputs)` is not it.
        `freeze`: evaluate in eval mode and keep one pass of a shuffling loader. `memory`: what kept graphs may hold.
        `distributed`: each process of `torch.distributed` holds its part of the data.
        """
        model = _unwrap(model)
        if not isinstance(model, nn.Module):
            refuse("model must be a torch.nn.Module", f"{type(model).__name__}", "Wrap a function in a small Module.")
        if not freeze:
            refuse_random_modules(model)
        selected, fixed = _snapshot(model, params)
        device = next(iter(selected.values())).device
        cache = 0.25 * parse_bytes(None, device) if device.type == "cpu" else 4e9
        batches = as_batches(data, batch_size, freeze, cache)
        problem = Problem(
            _Runner(model, parse(loss), forward),
            batches,
            ParameterSpace.of(selected),
            selected,
            fixed,
            freeze=freeze,
            memory=memory,
            distributed=distributed,
        )
        problem._try_first_batch()
        return problem

    @property
    def model(self) -> nn.Module:
        return self._runner.model

    @property
    def loss(self) -> SeparableLoss | Callable[..., Any]:
        return self._runner.loss

    @property
    def has_outputs(self) -> bool:
        """Whether outputs and loss come apart, as Gauss-Newton and Fisher matrices need."""
        return isinstance(self.loss, SeparableLoss)

    def need_outputs(self, what: str) -> None:
        """Refuse a loss that is only known as a number."""
        if not self.has_outputs:
            refuse(
                f"{what} needs the outputs and the loss apart",
                "a function that returns (sum, count)",
                "Pass a torch loss and forward=lambda model, batch: (outputs, targets).",
            )

    def leaves(self) -> dict[str, Tensor]:
        """The parameters as fresh leaves of a graph (no copies)."""
        return {name: tensor.detach().requires_grad_() for name, tensor in self.parameters.items()}

    def evaluate(self, batch: Any, parameters: Mapping[str, Tensor], traced: bool = False) -> OutputLoss | ScalarLoss:
        """Model and loss on one batch at these parameters; nothing of the model is changed."""
        self._runner.traced = traced
        state = {f"model.{name}": tensor for name, tensor in {**self._fixed, **parameters}.items()}
        batch = to_device(batch, self.device, self._batch_dtype)
        # Fused attention kernels have no second derivative; the math kernel has.
        with (
            eval_mode(self.model, self.freeze),
            sdpa_kernel(SDPBackend.MATH),
            plain_operations(self.model, traced),
        ):
            result: OutputLoss | ScalarLoss = call_at(self._runner, state, (batch,))
        return result

    @cached_property
    def totals(self) -> tuple[float, float]:
        """(Σ sum, Σ count) over all data and all processes, by one pass without derivatives."""
        total = torch.zeros(2, dtype=torch.float64)
        with torch.no_grad():
            for index, batch in enumerate(self.batches):
                value, count = self._value(batch)
                if not bool(torch.isfinite(value)):
                    refuse(
                        "the loss must be finite",
                        f"{float(value)} on batch {index}",
                        "Look at that batch, or lower the learning rate.",
                    )
                total += torch.tensor([float(value), count], dtype=torch.float64)
        total = self.all_sum(total)
        if not float(total[1]) > 0:
            refuse(
                "the data must count for something",
                "a total weight of 0",
                "Are all targets ignored or weighted by zero?",
            )
        return float(total[0]), float(total[1])

    @property
    def scale(self) -> float:
        """What a sum over batches is multiplied with: 1/count for a mean loss, 1 for a sum."""
        mean = self.loss.mean if isinstance(self.loss, SeparableLoss) else True
        return 1.0 / self.totals[1] if mean else 1.0

    def loss_value(self) -> float:
        """L(θ) over all data."""
        return self.totals[0] * self.scale

    def gradient(self) -> Tensor:
        """∇L(θ) as one flat vector."""
        leaves = self.leaves()
        names = list(leaves)
        flat = torch.zeros(self.space.size, dtype=self.dtype, device=self.device)
        used: set[str] = set()
        for batch in self.batches:
            gradients = self.batch_gradient(batch, leaves, create_graph=False)
            used |= {name for name, g in zip(names, gradients, strict=True) if g is not None}
            flat += self.space.pack(gradients, flat)
        self._unused = tuple(name for name in names if name not in used)
        return self.all_sum(flat).mul_(self.scale)

    def batch_gradient(
        self, batch: Any, leaves: Mapping[str, Tensor], create_graph: bool, through_loss: bool = True
    ) -> tuple[Tensor | None, ...]:
        """The gradient of one batch's sum; with `through_loss=False` its slope in the outputs is held fixed."""
        terms = self.evaluate(batch, leaves)
        wrt = list(leaves.values())
        if isinstance(terms, ScalarLoss):
            output, slope = terms.total, None
        else:
            output = terms.f
            slope = terms.differentiable_output_gradient() if create_graph and through_loss else terms.output_gradient()
        if not output.requires_grad:
            return (None,) * len(wrt)
        return torch.autograd.grad(output, wrt, slope, create_graph=create_graph, allow_unused=True)

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """Selected parameters that the loss does not depend on: their blocks are zero."""
        if not hasattr(self, "_unused"):
            self.gradient()
        return self._unused

    @cached_property
    def joinable(self) -> bool:
        """Whether two batches may be run as one: the loss of the first two together is the sum of their losses."""
        first_two = list(islice(iter(self.batches), 2))
        whole = joined(*first_two) if len(first_two) == 2 and self.has_outputs else None
        if whole is None:
            return False
        with torch.no_grad():
            parts = [self._value(batch)[0] for batch in first_two]
            together = self._value(whole)[0]
        return abs(float(sum(parts)) - float(together)) <= 1e-5 * abs(float(together))

    @cached_property
    def divisible(self) -> bool:
        """Whether batches may be cut along their first axis."""
        return all(examples_in(batch) is not None for batch in self.batches)

    @cached_property
    def probe(self) -> Problem:
        """This problem on a few examples in float64, if the model runs in it."""
        try:
            wide = self.subset(8).cast(torch.float64)
            wide.loss_value()
            return wide
        except RuntimeError:
            return self.subset(8)

    def all_sum(self, x: Tensor) -> Tensor:
        """The sum over the processes of a data-parallel problem."""
        if self.distributed:
            torch.distributed.all_reduce(x)
        return x

    def cast(self, dtype: torch.dtype) -> Problem:
        """The same problem in another floating-point type."""
        return self._copy(
            parameters={k: _cast(v, dtype) for k, v in self.parameters.items()},
            fixed={k: _cast(v, dtype) for k, v in self._fixed.items()},
            batch_dtype=dtype,
        )

    def select(self, globs: str | Iterable[str]) -> Problem:
        """The same problem in fewer parameters."""
        names = self.space.match(globs)
        chosen = {name: self.parameters[name] for name in names}
        rest = {name: t for name, t in self.parameters.items() if name not in chosen}
        return self._copy(parameters=chosen, fixed={**self._fixed, **rest}, space=ParameterSpace.of(chosen))

    def subset(self, examples: int) -> Problem:
        """The same problem on the first `examples` examples (whole batches where they cannot be cut)."""
        kept: list[Any] = []
        missing = examples
        for batch in self.batches:
            if missing <= 0:
                break
            kept.append(first_examples(batch, missing))
            missing -= examples_in(batch) or 1
        return self._copy(batches=Batches(kept, float("inf"), True))

    def at(self, parameters: Mapping[str, Tensor]) -> Problem:
        """The same problem at other parameter values, given by name."""
        new = {
            name: parameters[name].detach().to(t) if name in parameters else t for name, t in self.parameters.items()
        }
        return self._copy(parameters=new)

    def _copy(self, **changes: Any) -> Problem:
        settings: dict[str, Any] = {
            "runner": self._runner,
            "batches": self.batches,
            "space": self.space,
            "parameters": self.parameters,
            "fixed": self._fixed,
            "freeze": self.freeze,
            "memory": self.memory_budget.limit,
            "distributed": self.distributed,
            "batch_dtype": self._batch_dtype,
        }
        return Problem(**{**settings, **changes})

    def _value(self, batch: Any) -> tuple[Tensor, float]:
        terms = self.evaluate(batch, self.parameters)
        return (terms.total if isinstance(terms, ScalarLoss) else terms.value), terms.count

    def _try_first_batch(self) -> None:
        batch = next(iter(self.batches))
        with random_state_kept(self.device), torch.no_grad():
            try:
                first = self._value(batch)[0]
            except HesscopeError:
                raise
            except Exception as error:
                raise explain_forward_error(error, batch) from error
            again = self._value(next(iter(self.batches)))[0]
        if not same_value(first, again):
            refuse(
                "the loss must be a fixed function of the parameters",
                f"{float(first):.8g} and {float(again):.8g} for the first batch on two calls",
                "Switch off dropout, sampling and data augmentation, or pass Problem.of(..., freeze=True).",
            )

    def __repr__(self) -> str:
        return f"Problem({type(self.model).__name__}, {self.space.size} parameters in {len(self.space.names)} tensors)"


def _default_forward(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """`model(*inputs), targets` for tuples; `model(**inputs), labels` for dicts."""
    if isinstance(batch, Mapping):
        key = next((key for key in _TARGET_KEYS if key in batch), None)
        if key is None:
            refuse(f"a dict batch must have one of {_TARGET_KEYS}", f"keys {sorted(batch)}", "Or pass forward=.")
        outputs = model(**{name: value for name, value in batch.items() if name != key})
        return getattr(outputs, "logits", outputs), batch[key]
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        outputs = model(*batch[:-1])
        return getattr(outputs, "logits", outputs), batch[-1]
    refuse(
        "a batch must be (inputs, ..., targets) or a dict with targets", f"{type(batch).__name__}", "Or pass forward=."
    )


def _unwrap(model: Any) -> Any:
    """The module inside DistributedDataParallel or torch.compile."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def _snapshot(model: nn.Module, params: str | Iterable[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copies of the selected trainable parameters, and of everything else the model holds."""
    everything = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainable = {
        name: everything[name] for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()
    }
    if not everything:
        refuse("the model must have parameters", f"{type(model).__name__} with none", "Check the model.")
    if not trainable:
        refuse("at least one parameter must require a gradient", "all frozen", "Set requires_grad_(True) on some.")
    chosen = ParameterSpace.of(everything).match(params)
    selected = {name: trainable[name] for name in chosen if name in trainable}
    if not selected:
        refuse(
            "params must select a trainable parameter",
            f"{params!r}, which selects only frozen ones",
            "Set requires_grad_(True) on them.",
        )
    for name, tensor in selected.items():
        if tensor.dtype == torch.float16:
            refuse(
                "parameters must have at least bfloat16's range",
                f"{name!r} in float16",
                "Use model.float() or model.bfloat16().",
            )
    devices = {str(t.device) for t in selected.values()}
    if len(devices) > 1:
        refuse(
            "the selected parameters must be on one device",
            f"{sorted(devices)}",
            "Select the part on one device with params=.",
        )
    fixed = {name: t for name, t in everything.items() if name not in selected}
    fixed |= {name: b.detach().clone() for name, b in model.named_buffers()}
    return selected, fixed


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
