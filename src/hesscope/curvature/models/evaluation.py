"""Runs a model and its loss on one batch, at the problem's own parameters or at any others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import as_float, shown
from ...deadline import stop_if_late
from ...errors import DerivativeError, HesscopeError, refuse
from ..data import map_tensors
from ..engines.memory import is_out_of_memory
from ..losses.base import OutputLoss
from ..losses.functions import is_sum_and_count, loss_of_function
from ..losses.parsing import SeparableLoss
from ..proofs.determinism import eval_mode
from .attributes import attributes_kept
from .conditions import running
from .config import settle_configs
from .copies import private_copy, with_tensors
from .default_forward import DefaultForward, Forward
from .functional_call import call_at
from .own_loss import OwnLoss
from .random_state import random_state_kept

Loss = SeparableLoss | OwnLoss | Callable[..., Any]

# One evaluation at a time in a process: parameters are swapped and attention kernels chosen for its duration.
EVALUATION_LOCK = RLock()


@dataclass
class ScalarLoss:
    """A loss that comes as one number: (sum, count) of a batch, connected to the parameters."""

    total: Tensor
    count: float


class Evaluation(nn.Module):
    """Model and loss as one module, so that parameters can be swapped in by name below `model.`.

    `private` says that the model is our own copy, whose parameters are those of the problem; otherwise it is the
    user's model, which a closure somewhere holds on to, and every evaluation swaps and restores.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, forward: Forward | None, state: Mapping[str, Tensor], freeze: bool
    ) -> None:
        super().__init__()
        self.model, self.loss, self.split = model, loss, forward or DefaultForward()
        self.state, self.freeze = dict(state), freeze
        self.private = False
        self.draws_randomly = False  # the forward pass advances the random state, if without effect
        self.restored: tuple[str, ...] = ()  # buffers that a forward pass changes; each pass begins with the same
        self.recomputes = False  # parts of the forward pass run again in the backward pass
        self.changes_inputs = False  # in place, so that each pass gets a copy
        self.attends = False  # by torch's own function for it
        self.casts_to_float32 = False  # inside, and to nothing coarser: a float64 model shall keep its digits there
        self._runs = 0
        self.settled = False  # whether a function was found to take the model, or outputs

    @staticmethod
    def of_copy(
        model: nn.Module,
        loss: Loss,
        forward: Forward | None,
        state: Mapping[str, Tensor],
        selected: set[str],
        freeze: bool,
    ) -> Evaluation:
        """An evaluation of a private copy of `model` with the tensors of `state`."""
        made = Evaluation(private_copy(model, state, selected), loss, forward, state, freeze)
        settle_configs(made.model, model)
        made.private = True
        if freeze:
            made.model.eval()
        return made

    def moved(self, state: Mapping[str, Tensor], selected: set[str]) -> Evaluation:
        """The same with other tensors: a copy of the copy, or the user's model again."""
        if self.private:
            made = Evaluation.of_copy(self.model, self.loss, self.split, state, selected, self.freeze)
        else:
            made = Evaluation(self.model, self.loss, self.split, state, self.freeze)
        made.restored, made.draws_randomly, made.recomputes = self.restored, self.draws_randomly, self.recomputes
        made.settled, made.changes_inputs = self.settled, self.changes_inputs
        made.casts_to_float32, made.attends = self.casts_to_float32, self.attends
        return made

    @property
    def _wide(self) -> bool:
        floating = (tensor for tensor in self.state.values() if tensor.is_floating_point())
        return self.casts_to_float32 and all(tensor.dtype == torch.float64 for tensor in floating)

    def own_leaves(self, names: tuple[str, ...]) -> dict[str, Tensor] | None:
        """The model's own parameters by name, where it is ours to differentiate."""
        if not self.private:
            return None
        own = dict(self.model.named_parameters())
        return {name: own[name] for name in names}

    def at(self, batch: Any, parameters: Mapping[str, Tensor]) -> OutputLoss | ScalarLoss:
        """Model and loss on one batch at these parameters."""
        stop_if_late()
        with (
            EVALUATION_LOCK,
            random_state_kept(self.draws_randomly) as random_state,
            running(self.model, self._wide, self.attends),
            attributes_kept(self.model),
        ):
            if random_state is not None:
                # Never the same draws twice: what they do to the loss must show as a difference between two calls.
                self._runs += 1
                random_state.scramble(self._runs)
            if self.changes_inputs:
                batch = map_tensors(batch, Tensor.clone)
            if self._is_own(parameters):
                # Nothing is swapped, so that checkpointed parts see the same parameters when they run again.
                return self(batch)  # type: ignore[no-any-return]
            state = {**self.state, **parameters}
            state |= {name: state[name].clone() for name in self.restored}
            _stand_in_for_parameters(self.model, state)
            if self.private and self.recomputes:
                # What runs again must find these parameters after we are gone: they go into a copy of their own.
                made = Evaluation(with_tensors(self.model, state), self.loss, self.split, state, False)
                made.settled = True
                return made(batch)  # type: ignore[no-any-return]
            with eval_mode(self.model, self.freeze):
                return call_at(self, {f"model.{name}": tensor for name, tensor in state.items()}, (batch,))  # type: ignore[no-any-return]

    def _is_own(self, parameters: Mapping[str, Tensor]) -> bool:
        if not self.private or self.restored:
            return False
        own = dict(self.model.named_parameters())
        trained = sum(p.requires_grad for p in own.values())
        return len(parameters) == trained and all(own.get(name) is tensor for name, tensor in parameters.items())

    def forward(self, batch: Any) -> OutputLoss | ScalarLoss:
        if isinstance(self.loss, OwnLoss):
            self.loss, split = self.loss.settle(self.model, batch)
            self.split = split or self.split
        elif not isinstance(self.loss, SeparableLoss) and not self.settled:
            self.loss = loss_of_function(self.loss, self.model, batch, self.split)
        self.settled = True
        if isinstance(self.loss, SeparableLoss):
            return self.loss.rows(*self._outputs_and_targets(batch))
        result = self.loss(self.model) if batch is None else self.loss(self.model, batch)
        if isinstance(result, Tensor) and batch is None:
            result = (result, 1.0)
        if not is_sum_and_count(result):
            refuse(
                "loss(model, batch) must return (sum, count): a scalar tensor and a number",
                f"{type(result).__name__}",
                "Return the summed loss of the batch and what a mean divides by.",
            )
        if result[0].is_complex():
            refuse("the loss must be real", f"{result[0].dtype}", "Return its real part, or its absolute value.")
        if isinstance(result[1], Tensor) and result[1].requires_grad:
            refuse(
                "the count of loss(model, batch) must not depend on the parameters",
                "a tensor with a graph to them",
                "Return (sum / count, 1): the ratio is then what is differentiated; or count.detach().",
            )
        count = as_float(result[1])
        if count is None or not (0 < count < float("inf") or (count == 0 and float(result[0].detach()) == 0)):
            refuse(
                "the count of loss(model, batch) must be a positive number",
                shown(result[1]) if count is None else f"{count}",
                "Return what a mean over the batch divides by, for example len(targets).",
            )
        return ScalarLoss(result[0], count)

    def _outputs_and_targets(self, batch: Any) -> tuple[Any, Any]:
        found: Any = self.split(self.model, batch)
        if not isinstance(found, tuple | list) or len(found) != 2:
            got = (
                f"a {type(found).__name__} of {len(found)}" if isinstance(found, tuple | list) else type(found).__name__
            )
            refuse("forward must return two values", got, "Return (outputs, targets).")
        return found[0], found[1]


def _stand_in_for_parameters(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Let the tensors that take the places of parameters answer `isinstance(t, nn.Parameter)` as those do: torch's mark
    for that, since a model may ask (a temperature that is learned, or a number)."""
    for name, _ in model.named_parameters():
        if name in state:
            state[name]._is_param = True


def value_of(terms: OutputLoss | ScalarLoss) -> float:
    """The sum over the batch, as a number."""
    return float(terms.total.detach() if isinstance(terms, ScalarLoss) else terms.value)


def gradient_of(
    terms: OutputLoss | ScalarLoss, leaves: Mapping[str, Tensor], create_graph: bool, through_loss: bool
) -> tuple[Tensor | None, ...]:
    """The gradient of a batch's sum; with `through_loss=False` the gradient in the outputs is held fixed."""
    wrt = list(leaves.values())
    if isinstance(terms, ScalarLoss):
        output, slope = terms.total, None
    else:
        output = terms.f
        slope = terms.differentiable_output_gradient() if create_graph and through_loss else terms.output_gradient()
    if not output.requires_grad:
        return (None,) * len(wrt)
    try:
        return torch.autograd.grad(output, wrt, slope, create_graph=create_graph, allow_unused=True)
    except RuntimeError as error:
        if is_out_of_memory(error) or isinstance(error, HesscopeError):
            raise
        refuse_freed_graph(error)
        raise DerivativeError(
            f"the loss must have a gradient; got {error} Look for operations in place, or without a derivative."
        ) from error


def refuse_freed_graph(error: RuntimeError) -> None:
    """Say what to do where the loss itself differentiated without keeping its graph."""
    if "backward through the graph a second time" in str(error):
        raise DerivativeError(
            "a loss that differentiates inside must keep its graph; got one that was freed. Pass create_graph=True to "
            "torch.autograd.grad inside the loss."
        )
