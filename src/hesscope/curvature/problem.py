"""The Hessian of the loss the user really trains: model, loss, data and parameters in one object."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ..arguments import need_count
from ..errors import refuse
from ..operators import LinearOperator
from ..operators.finite import need_finite
from ..rng import Rng
from ..space import ParameterSpace
from .cutting import cut_in_batches, refuse_own_batches
from .data import Batches, as_batches, checked_batch_size, examples_in, few_of, to_device
from .distributed import together
from .engines.memory import MemoryBudget, parse_bytes
from .gradient_mode import backward_loaded, differentiable
from .in_values import problem_in
from .losses.base import OutputLoss
from .losses.parsing import SeparableLoss, parse
from .models.checkpoint_files import checkpoints_in
from .models.default_forward import Forward
from .models.evaluation import EVALUATION_LOCK, Evaluation, Loss, gradient_of, value_of
from .models.evaluation import ScalarLoss as ScalarLoss
from .models.moving import new_tensors, warn_of_kept_statistics
from .models.own_loss import OwnLoss, check_own_loss, is_whole
from .models.sharded import unsharded
from .models.state import cast, common_type, snapshot, unwrap
from .processes import agree_on_loss, any_process, refuse_different_models
from .proofs.batch_values import confirm_value, total_of_batches, values_of_batches
from .proofs.counting_examples import few_examples
from .proofs.determinism import refuse_random_modules
from .proofs.first_look import look_at_first_batch
from .proofs.independence import are_independent
from .proofs.probing import exact, give_back_of, is_large, probe_of
from .settings import check_settings, need_float_type
from .spread import Spread, spread_out, whole_tensors
from .value_facts import of_values

_BATCH_SIZE = 1024


class Problem:
    """A loss L(θ) = Σ_batches sum / Σ_batches count (or the plain sum), with θ the selected parameters.

    The problem evaluates its own copy of the model, made once: the user's model is never touched, and training on
    afterwards does not change the problem.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        batches: Batches,
        space: ParameterSpace,
        parameters: dict[str, Tensor],
        fixed: dict[str, Tensor],
        *,
        memory: float | str | None,
        distributed: bool,
        lean: bool = False,
        batch_dtype: torch.dtype | None = None,
        origin: Mapping[str, weakref.ref[nn.Parameter]] | None = None,
    ) -> None:
        self._given, self.batches, self.space = evaluation, batches, space
        self._tensors = parameters, fixed
        self.spread: Spread | None = None  # the same in parts, while no one has asked for them whole
        self.distributed, self._batch_dtype = distributed, batch_dtype
        self.lean = lean or distributed  # processes share the work so that each holds less: no copies for speed
        self.origin = origin or {}  # the user's own parameters by name: what an optimiser holds
        self.device = next(iter(parameters.values())).device
        self.types = frozenset(tensor.dtype for tensor in parameters.values())
        self.dtype = common_type(parameters.values())
        self.memory_budget = MemoryBudget(parse_bytes(memory, self.device))
        self.verdict: Any = None  # what hs.check found
        self.proofs: dict[str, Any] = {}  # what was proven of the derivatives, by the first products
        self._made: Evaluation | None = None
        self._first_value: tuple[float, float] | None = None
        self._wide: Problem | None = None
        self._probe: Problem | None = None
        self.selected_from: Problem | None = None  # the same problem in more parameters

    @staticmethod
    @differentiable()
    def of(
        model: nn.Module,
        loss: Any = None,
        data: Any = None,
        params: str | Iterable[str] = "*",
        *,
        reduction: str | None = None,
        forward: Forward | None = None,
        freeze: bool = False,
        batch_size: int | None = None,
        memory: float | str | None = None,
        distributed: bool = False,
        wrt: str | None = None,
        batch_statistics: bool = False,
    ) -> Problem:
        """The problem of a model, a loss and data, in the parameters that `params` globs select.

        `loss`: a torch loss module (its reduction, class weights, ignore_index and label smoothing are kept), a name
        ("cross_entropy", "mse", "squared_error", "huber", "bce"), any `loss(outputs, targets)` with one value for each
        example (their mean; `reduction="sum"` for the sum) or with one number (and its `reduction` named; "mean"
        weights batches by examples), or `loss(model, batch) -> (sum, count)`. None is the loss that the model computes itself, from dict batches with
        labels, as Hugging Face models do: averaged over everything in all batches that has a label.
        `data`: `(inputs, targets)`, a Dataset, a DataLoader, an iterable of batches, or None when the loss needs none.
        Tensors of more than `batch_size` (1024) examples are cut in batches, where examples do not see each other.
        `forward(model, batch) -> (outputs, targets)`: how to run one batch, where `model(inputs)` is not it.
        `freeze`: evaluate in eval mode and keep one pass of a shuffling loader. `memory`: what kept graphs may hold.
        `distributed`: each process of `torch.distributed` holds its part of the data. `wrt`: "inputs", or a module whose
        output is what to differentiate in. `batch_statistics`: batch-norm in training mode uses those of each batch given.
        """
        if wrt is not None:
            return problem_in(wrt, Problem.of, unwrap(model), loss, data, reduction=reduction, freeze=freeze)
        model = unwrap(model)
        if not isinstance(model, nn.Module):
            refuse("model must be a torch.nn.Module", f"{type(model).__name__}", "Wrap a function in a small Module.")
        check_settings(forward, freeze, distributed)
        backward_loaded()
        theirs, model = model, unsharded(model, distributed)
        size = _BATCH_SIZE if batch_size is None else checked_batch_size(batch_size)
        if not freeze:
            refuse_random_modules(model, batch_statistics)
        selected, fixed = snapshot(model, params, copied=model is not theirs)
        device = next(iter(selected.values())).device
        cache = 0.25 * parse_bytes(None, device) if device.type == "cpu" else 4e9
        batches = as_batches(data, size, freeze, cache, may_be_empty=distributed)
        state = {**fixed, **selected}
        parsed = OwnLoss() if loss is None and forward is None else parse(loss, reduction)
        with EVALUATION_LOCK:
            evaluation = Evaluation.of_copy(model, parsed, forward, state, set(selected), freeze)
        space = ParameterSpace.of(selected)
        own = {name: weakref.ref(p) for name, p in model.named_parameters()}
        problem = Problem(
            evaluation, batches, space, selected, fixed, memory=memory, distributed=distributed, origin=own
        )
        if distributed:
            refuse_different_models(state, device)
        problem = cut_in_batches(problem, data, size)
        problem._first_value = look_at_first_batch(problem, model)
        if distributed:
            agree_on_loss(problem)
        if batch_size is not None or isinstance(data, Dataset):
            refuse_own_batches(problem, data, size)
        check_own_loss(problem, data is not None)
        if model is not theirs:
            spread_out(problem)
        give_back_of(problem)
        return problem

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The selected parameters by name; of a sharded model they are gathered when all processes ask for them."""
        return whole_tensors(self)[0]

    @property
    def _fixed(self) -> dict[str, Tensor]:
        return whole_tensors(self)[1]

    @property
    def _evaluation(self) -> Evaluation:
        """Model and loss at this problem's own tensors: shared with the problem it came from where those are."""
        # Not a cached_property: its lock and ours could be taken in either order, by two threads.
        with EVALUATION_LOCK:
            if self._made is None:
                given, state = self._given, {**self._fixed, **self.parameters}
                own = {name for name, p in given.model.named_parameters() if p.requires_grad}
                same = all(given.state.get(name) is tensor for name, tensor in state.items())
                if same and (own == set(self.parameters) or not given.private):
                    self._made = given
                else:
                    with differentiable():
                        self._made = given.moved(state, set(self.parameters))
            return self._made

    @property
    def model(self) -> nn.Module:
        """The problem's own copy of the model: the module that `evaluate` runs, and that hooks belong on."""
        return self._evaluation.model

    @property
    def loss(self) -> Loss:
        return self._given.loss

    @property
    def freeze(self) -> bool:
        return self._given.freeze

    @property
    def has_outputs(self) -> bool:
        """Whether outputs and loss come apart, as Gauss-Newton and Fisher matrices need."""
        return isinstance(self.loss, SeparableLoss)

    def as_operator(self) -> LinearOperator:
        """What stands for this problem where a matrix is wanted: its Hessian."""
        from .hessian import Hessian

        return Hessian(self)

    def need_outputs(self, what: str) -> None:
        """Refuse a loss that is only known as a number."""
        if not self.has_outputs:
            refuse(
                f"{what} needs the outputs and the loss apart",
                "a loss of the model's own that is none of its logits alone"
                if is_whole(self.loss)
                else "a function that returns (sum, count)",
                "Pass a torch loss and forward=lambda model, batch: (outputs, targets).",
            )

    def leaves(self) -> dict[str, Tensor]:
        """The parameters as leaves of a graph (no copies): where possible the parameters of the model that runs."""
        if (own := self._evaluation.own_leaves(self.space.names)) is not None:
            return own
        with differentiable():
            return {name: tensor.detach().requires_grad_() for name, tensor in self.parameters.items()}

    def evaluate(self, batch: Any, parameters: Mapping[str, Tensor]) -> OutputLoss | ScalarLoss:
        """Model and loss on one batch at these parameters; nothing of the model is changed."""
        with differentiable():
            return self._evaluation.at(to_device(batch, self.device, self._batch_dtype), parameters)

    @of_values
    def batch_values(self) -> tuple[tuple[float, float], ...]:
        """(sum, count) of each batch of this process, by one pass without derivatives."""
        return values_of_batches(self, self._first_value)

    def confirm(self, index: int, value: float, count: int = 1) -> None:
        """Refuse a loss of `count` batches from `index` on that is not the one recorded: it is not a fixed function."""
        confirm_value(self, index, value, count)

    @of_values
    def totals(self) -> tuple[float, float]:
        """(Σ sum, Σ count) over all data and all processes, by one pass without derivatives."""
        return total_of_batches(self)

    @property
    def scale(self) -> float:
        """What a sum over batches is multiplied with: 1/count for a mean loss, 1 for a sum."""
        mean, count = self.loss.mean if isinstance(self.loss, SeparableLoss) else True, float(self.totals[1])
        return 1.0 / count if mean else 1.0

    def loss_value(self) -> float:
        """L(θ) over all data."""
        return float(self.totals[0]) * self.scale

    def gradient(self) -> Tensor:
        """∇L(θ) as one flat vector; computed once."""
        return self._gradient.clone()

    @cached_property
    @differentiable()
    def _gradient(self) -> Tensor:
        leaves = self.leaves()
        names = list(leaves)
        flat = torch.zeros(self.space.size, dtype=self.dtype, device=self.device)
        used: set[str] = set()
        for index, batch in enumerate(self.batches):
            terms = self.evaluate(batch, leaves)
            self.confirm(index, value_of(terms))
            gradients = gradient_of(terms, leaves, create_graph=False, through_loss=True)
            used |= {name for name, g in zip(names, gradients, strict=True) if g is not None}
            flat += self.space.pack(gradients, flat)
        self._unused = tuple(name for name in names if name not in used)
        return need_finite(self.all_sum(flat).mul_(self.scale), "the gradient")

    @differentiable()
    def batch_gradient(
        self, batch: Any, leaves: Mapping[str, Tensor], create_graph: bool, through_loss: bool = True
    ) -> tuple[Tensor | None, ...]:
        """The gradient of one batch's sum; with `through_loss=False` its slope in the outputs is held fixed."""
        return gradient_of(self.evaluate(batch, leaves), leaves, create_graph, through_loss)

    @property
    def unused(self) -> tuple[str, ...]:
        """Selected parameters that the loss does not depend on: their blocks are zero."""
        _ = self._gradient  # whose pass tells
        return self._unused

    @of_values
    def _few(self) -> list[Any] | None:
        """A few examples that count, scattered at random over the data; the same in every process."""
        return few_examples(self)

    @of_values
    def divisible(self) -> bool:
        """Whether batches may be cut along their first axis, joined or halved: examples do not see each other."""
        few = self._few or []
        if all((examples_in(group) or 0) < 2 for group in few):
            return False
        wide = exact(self, few)
        return are_independent(lambda batch: wide.evaluate(batch, wide.parameters), few, Rng(0).child("cut"))

    @property
    def joinable(self) -> bool:
        """Whether two batches may be run as one."""
        return self.has_outputs and self.divisible

    @property
    def probe(self) -> Problem:
        """This problem on a few examples scattered over the data (a smallest whole batch where examples see each
        other), in float64 where the model runs in it: what proofs of special methods run on, in one process."""
        found = self._probe or probe_of(self)
        if not is_large(self):
            self._probe = found
        return found

    def _anywhere(self, flag: bool) -> bool:
        """Whether it holds in some process of a data-parallel problem."""
        return any_process(flag, self.device) if self.distributed else flag

    def all_sum(self, x: Tensor) -> Tensor:
        """The sum over the processes of a data-parallel problem."""
        if self.distributed:
            with together():
                torch.distributed.all_reduce(x)
        return x

    def cast(self, dtype: torch.dtype) -> Problem:
        """The same problem in another floating-point type."""
        need_float_type(dtype)
        with differentiable():
            return self._copy(
                parameters={k: cast(v, dtype) for k, v in self.parameters.items()},
                fixed={k: cast(v, dtype) for k, v in self._fixed.items()},
                batch_dtype=dtype,
            )

    def select(self, globs: str | Iterable[str]) -> Problem:
        """The same problem in fewer parameters."""
        return self.only(self.space.match(globs))

    def only(self, names: Iterable[str]) -> Problem:
        """The same problem in the parameters of exactly these names."""
        space = self.space.only(names)
        chosen = {name: self.parameters[name] for name in space.names}
        rest = {name: t for name, t in self.parameters.items() if name not in chosen}
        made = self._copy(parameters=chosen, fixed={**self._fixed, **rest}, space=space)
        made.selected_from = self.selected_from or self
        return made

    def subset(self, examples: int) -> Problem:
        """The same problem on the first `examples` examples (whole batches where they cannot be cut)."""
        kept = few_of(self.batches, need_count("examples", examples), lambda: self.divisible)
        return self._copy(batches=Batches(kept, float("inf"), True))

    def at(self, state: Mapping[str, Tensor] | str | os.PathLike[str], *, partial: bool = False) -> Problem:
        """The same problem at other values, by name: a state dict of all selected parameters (`partial`: or of some), and of
        buffers where there are any (running statistics that are left out stay as they are, with a warning); or a
        checkpoint: .pt, .ckpt (Lightning), .safetensors, .npz, a Hugging Face folder."""
        new = new_tensors(self.model, state, {**self.parameters, **self._fixed}, () if partial else self.parameters)
        if not partial:
            warn_of_kept_statistics(self.model, new)
        return self._copy(
            parameters={name: new.get(name, t) for name, t in self.parameters.items()},
            fixed={name: new.get(name, t) for name, t in self._fixed.items()},
        )

    def along(self, folder: str | os.PathLike[str]) -> dict[str, Problem]:
        """The problem at every checkpoint of a folder, by step: what `hs.analyze(..., checkpoints=...)` takes."""
        return {label: self.at(path) for label, path in checkpoints_in(folder).items()}

    def _copy(self, **changes: Any) -> Problem:
        settings: dict[str, Any] = {
            "evaluation": self._evaluation,
            "batches": self.batches,
            "space": self.space,
            "parameters": self.parameters,
            "fixed": self._fixed,
            "memory": self.memory_budget.limit,
            "distributed": self.distributed,
            "lean": self.lean,
            "batch_dtype": self._batch_dtype,
            "origin": self.origin,
        }
        return Problem(**{**settings, **changes})

    def value_of(self, batch: Any) -> tuple[float, float]:
        """(sum, count) of one batch, without derivatives."""
        terms = self.evaluate(batch, self.parameters)
        return value_of(terms), terms.count

    def __deepcopy__(self, memo: Any) -> Problem:
        return self._copy()

    def __getstate__(self) -> NoReturn:
        refuse("a problem must stay in its process", "one to pickle", "Make it again there, with Problem.of(...).")

    def __repr__(self) -> str:
        return f"Problem({type(self._given.model).__name__}, {self.space.size} parameters in {len(self.space.names)} tensors)"
