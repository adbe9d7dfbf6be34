"""Before anything is computed: the model runs, gives the same twice, and what it reads and writes is known."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...errors import HesscopeError, refuse
from ..data import examples_in, first_examples, map_tensors, tensors_of
from ..models.attributes import computed_before
from ..models.evaluation import EVALUATION_LOCK, Evaluation, ScalarLoss, refuse_freed_graph
from ..models.random_state import random_state_kept
from .determinism import explain_forward_error, same_value
from .first_run import FirstRun, nodes_of, places, reentrant_checkpoints_refused, refuse_reentrant, storage_of
from .independence import same_numbers

if TYPE_CHECKING:
    from ..problem import Problem

_LARGE, _FEW = 8, 2  # examples: from so many on, so few are run a second time
_MORE_RUNS = 3  # of a network that draws random numbers, perhaps without effect


def look_at_first_batch(problem: Problem, model: nn.Module) -> tuple[float, float] | None:
    """Settle how the problem is evaluated, and return what its first batch gives; refuse what is not a fixed function."""
    batch = next(iter(problem.batches), None)
    if batch is None and problem.distributed:
        return None  # an empty share
    derived = computed_before(model, problem.model)
    own = places(problem.parameters | problem._fixed)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers()), **derived}
    theirs = {name: tensor for name, tensor in named.items() if storage_of(tensor) not in own}  # the rest is a copy
    with EVALUATION_LOCK, reentrant_checkpoints_refused(), random_state_kept() as random_state:
        evaluation = problem._evaluation
        first, run = _watched(problem, evaluation, theirs, batch)
        if run.read:
            # Something holds on to the user's own model (a closure, a patched forward): swap parameters in there.
            evaluation = Evaluation(model, evaluation.loss, evaluation.split, evaluation.state, evaluation.freeze)
            _refuse_computed_before(run, derived)
            first, run = _watched(problem, evaluation, theirs, batch)
            _refuse_computed_before(run, derived)
            _refuse_captured(run)
        _refuse_unfinished(evaluation)
        run.refuse_other_functions(dict(model.named_parameters()))
        _restore_written(evaluation, run, theirs)
        evaluation.recomputes, evaluation.attends = run.recomputed, run.attends
        evaluation.changes_inputs = any(name.startswith("input ") for name in run.written - set(evaluation.state))
        evaluation.casts_to_float32 = run.casts_to_float32
        # Watching may choose other kernels, which round differently in low precision: plain runs decide there.
        coarse = run.casts_to_less or torch.finfo(problem.dtype).bits < 32
        first = _in_its_own_digits(problem, evaluation, first)
        if coarse or not _few_repeat(problem, evaluation, batch):
            first = _repeated(problem, evaluation, first)
        _refuse_kept_elsewhere(problem, evaluation, run, theirs, batch)
        assert random_state is not None
        evaluation.draws_randomly = random_state.moved()
        if evaluation.draws_randomly:  # two runs of few examples may be alike by chance
            for _ in range(_MORE_RUNS):
                _repeated(problem, evaluation, first)
        _look_at_graph(problem, evaluation, batch, theirs)
    return first


def _in_its_own_digits(problem: Problem, evaluation: Evaluation, first: tuple[float, float]) -> tuple[float, float]:
    """The first value of a float64 model that casts to float32 inside, without the casts where it runs without them."""
    if not evaluation._wide:
        return first
    try:
        return _value(problem, evaluation, next(iter(problem.batches)))
    except Exception:
        evaluation.casts_to_float32 = False
        return first


def _few_repeat(problem: Problem, evaluation: Evaluation, batch: Any) -> bool:
    """Whether a large first batch may count as seen twice: a few of its examples give the same on two passes of the data.
    Every product compares the whole of it again."""
    if problem.distributed or (examples_in(batch) or 0) < _LARGE:
        return False  # processes must run a model equally often, whatever their shares are
    try:
        first, again = (
            _value(problem, evaluation, first_examples(one, _FEW))[0] for one in (batch, next(iter(problem.batches)))
        )
    except Exception:
        return False  # not to be cut
    return same_value(first, again)


def _repeated(problem: Problem, evaluation: Evaluation, first: tuple[float, float]) -> tuple[float, float]:
    """The value of the first batch once more, or a refusal."""
    again = _value(problem, evaluation, next(iter(problem.batches)))
    if not same_value(first[0], again[0]):
        first, again = again, _value(problem, evaluation, next(iter(problem.batches)))
    if not same_value(first[0], again[0]):
        refuse(
            "the loss must be a fixed function of the parameters",
            f"{first[0]:.8g} and {again[0]:.8g} for the first batch on two calls",
            "It draws numbers itself: pass the noise with the data, or use the mean."
            if problem.freeze or not any(module.training for module in evaluation.model.modules())
            else "Switch off dropout, sampling and data augmentation, or pass Problem.of(..., freeze=True); noise that the "
            "loss draws itself must come with the data.",
        )
    return first


def _value(problem: Problem, evaluation: Evaluation, batch: Any) -> tuple[float, float]:
    problem._given = problem._made = evaluation
    return problem.value_of(batch)


def _watched(
    problem: Problem, evaluation: Evaluation, theirs: dict[str, Tensor], batch: Any
) -> tuple[tuple[float, float], FirstRun]:
    batch = map_tensors(batch, Tensor.clone)  # some models change their inputs in place
    inputs = {f"input {index}": tensor for index, tensor in enumerate(tensors_of(batch))}
    run = FirstRun(theirs, {**evaluation.state, **inputs}, inputs.values())
    try:
        with run.watching():
            return _value(problem, evaluation, batch), run
    except HesscopeError:
        raise
    except Exception as error:
        try:
            return _value(problem, evaluation, batch), run  # only the watching failed
        except Exception:
            raise explain_forward_error(error, batch) from error


def _refuse_computed_before(run: FirstRun, derived: Collection[str]) -> None:
    read = sorted(name.rpartition(" ")[0] for name in run.read if name in derived)
    if read:
        refuse(
            "a model must compute what it uses from its parameters in every pass",
            f"{read[0]!r}, which was computed from them before and kept",
            "Compute it in forward; or clear what the model has cached (set it to None) before you make the problem.",
        )


def _refuse_kept_elsewhere(
    problem: Problem, evaluation: Evaluation, first: FirstRun, theirs: dict[str, Tensor], batch: Any
) -> None:
    """Parameters that the first pass used and a later one does not: what it made of them is kept outside of the model."""
    unused = [name for name in problem.space.names if name in first.used]
    for part in (first_examples(batch, 2), batch):  # a few examples may leave out a part that others use
        if unused:
            try:
                _, run = _watched(problem, evaluation, theirs, part)
            except HesscopeError:
                continue  # too few examples to run
            unused = [name for name in unused if name not in run.used]
    if unused:
        refuse(
            "a model must compute what it uses from its parameters in every pass",
            f"{unused[0]!r}, which the first pass used and the second did not",
            "Compute it in forward: what is kept outside of the model (lru_cache, a global) is that of other parameters.",
        )


def _refuse_unfinished(evaluation: Evaluation) -> None:
    named = (*evaluation.model.named_parameters(), *evaluation.model.named_buffers())
    new = [name for name, _ in named if name not in evaluation.state]
    if new:
        refuse(
            "the model must have all its tensors before a problem is made of it",
            f"{new[0]!r}, which its forward pass makes",
            "Run one batch through it first.",
        )


def _refuse_captured(run: FirstRun) -> None:
    if run.read:
        refuse(
            "the loss and the model must take their parameters from the model that is passed",
            f"code that holds on to the tensor {min(run.read)!r} itself",
            "Write loss(model, batch) with that model's parameters, or read them as attributes of a module.",
        )


def _restore_written(evaluation: Evaluation, run: FirstRun, theirs: dict[str, Tensor]) -> None:
    """Buffers that a forward pass changes begin every pass with the values they have in the user's model."""
    written = tuple(name for name in evaluation.state if name in run.written)
    for name in written:
        evaluation.state[name].copy_(theirs[name])
    evaluation.restored = written


def _look_at_graph(problem: Problem, evaluation: Evaluation, batch: Any, theirs: dict[str, Tensor]) -> None:
    """Checkpointing must be of the kind that can be differentiated, and see our parameters when it runs again."""
    output = _graph_of(problem, first_examples(batch, 2))
    tried = first_examples(batch, 2) if output is not None else batch
    output = output or _graph_of(problem, batch)
    if output is None:
        return
    _refuse_asking_for_gradients(problem, tried, output[0])
    if not output[0].requires_grad and not _depends(problem, batch):
        refuse(
            "the loss must depend on the selected parameters",
            "a value without a graph to any of them",
            "Do not detach it, or compute it below torch.no_grad; or select other parameters.",
        )
    if any(node.name() == "CheckpointFunctionBackward" for node in nodes_of(output[0])):
        refuse_reentrant()
    own = dict(evaluation.model.named_buffers())
    replaced = {name for name, buffer in own.items() if buffer is not evaluation.state[name]}
    if evaluation.private and replaced:
        for path, module in evaluation.model.named_modules():
            for local in module._buffers:
                name = f"{path}.{local}" if path else local
                if name in replaced:
                    module._buffers[local] = evaluation.state[name]
        evaluation.restored = tuple({*evaluation.restored, *replaced})
    if not evaluation.private:
        _refuse_recomputed(output, evaluation, theirs)


def _graph_of(problem: Problem, batch: Any) -> tuple[Tensor, dict[str, Tensor]] | None:
    leaves = problem.leaves()
    try:
        terms = problem.evaluate(batch, leaves)
    except Exception:
        return None  # too few examples to run, or too many for the memory
    output = terms.total if isinstance(terms, ScalarLoss) else terms.f
    return output, leaves


def _refuse_asking_for_gradients(problem: Problem, batch: Any, output: Tensor) -> None:
    """The same with parameters that are constants: a model that asks what requires a gradient is two functions."""
    terms = problem.evaluate(batch, problem.parameters)
    plain = terms.total if isinstance(terms, ScalarLoss) else terms.f
    if not bool(plain.isfinite().all()) or same_numbers(plain, output):
        return
    again = _graph_of(problem, batch)
    if again is not None and same_numbers(again[0], output):  # else it is random, which is told as such
        refuse(
            "the model must compute the same whether a gradient is asked for or not",
            "other outputs for the first examples with parameters that require none",
            "Do not ask for requires_grad in forward: let an attribute of the module decide.",
        )


def _depends(problem: Problem, batch: Any) -> bool:
    output = _graph_of(problem, batch)
    return output is None or output[0].requires_grad


def _refuse_recomputed(
    output: tuple[Tensor, dict[str, Tensor]], evaluation: Evaluation, theirs: dict[str, Tensor]
) -> None:
    """Parts that run again in the backward pass would find the user's parameters in a model that is not ours."""
    value, leaves = output
    if not value.requires_grad:
        return
    run = FirstRun(theirs, evaluation.state, ())
    try:
        with run.watching():
            torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True)
    except RuntimeError as error:
        refuse_freed_graph(error)
        return  # what torch cannot differentiate is named by the proof before the first product
    _refuse_captured(run)
