"""Finds the linear layer whose outputs are the logits, and shows on the user's own network that nothing happens in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..data import first_examples
from ..losses.base import OutputLoss
from ..losses.softmax import SoftmaxLoss
from ..problem import Problem, ScalarLoss
from .head_terms import HeadTerms
from .memory import is_out_of_memory

LEAST_CLASSES = 1024  # below, logits are no burden
_TRANSPOSES = (Tensor.T.__get__, Tensor.mT.__get__, Tensor.t, torch.t)  # type: ignore[attr-defined]
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm)
# What may lie between the layer and the loss: nodes that only pick and arrange rows.
_ARRANGING = (
    *("View", "UnsafeView", "ReshapeAlias", "Slice", "Index", "Select", "Clone", "Alias", "Squeeze", "Unsqueeze"),
    *("Transpose", "Permute"),
)
_DIGITS = {torch.float64: 1e-10, torch.float32: 1e-4}
_MOST_ROWS = 2**24  # whole numbers that float32 holds


@dataclass
class _Call:
    """One linear map of the forward pass: its input, the names of its parameters, and what it gave."""

    x: Tensor
    weight: str
    bias: str | None
    out: Tensor


class _Linears(TorchFunctionMode):
    """Sees every linear map by one of the parameters; `replaced` ones return the numbers of their rows as logits."""

    def __init__(self, parameters: Mapping[str, Tensor], replaced: str | None = None) -> None:
        super().__init__()
        self._held = dict(parameters)
        self._name_of = {id(t): name for name, t in parameters.items()}
        self._turned: dict[int, tuple[str, Tensor]] = {}  # transposes, held so that no other tensor takes an id
        self._replaced = replaced
        self.calls: list[_Call] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        found = self._roles(func, args, kwargs)
        if found is None:
            out = func(*args, **kwargs)
            if func in _TRANSPOSES and id(args[0]) in self._name_of and args[0].ndim == 2:
                self._turned[id(out)] = self._name_of[id(args[0])], out
            return out
        x, weight, bias = found
        if weight != self._replaced:
            self.calls.append(_Call(x, weight, bias, func(*args, **kwargs)))
        else:
            rows = torch.arange(x.shape[:-1].numel(), dtype=x.dtype, device=x.device).view(*x.shape[:-1], 1)
            self.calls.append(_Call(x, weight, bias, rows.expand(*x.shape[:-1], len(self._held[weight]))))
        return self.calls[-1].out

    def _roles(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor, str, str | None] | None:
        if func is F.linear:
            given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
            x, weight, bias = (given.get(name) for name in ("input", "weight", "bias"))
            name = self._name_of.get(id(weight))
            unknown = bias is not None and id(bias) not in self._name_of
            if name is None or unknown or not isinstance(x, Tensor) or x.ndim < 2:
                return None
            return x, name, None if bias is None else self._name_of[id(bias)]
        if func in _PRODUCTS and len(args) == 2 and not kwargs and id(args[1]) in self._turned and args[0].ndim >= 2:
            return args[0], self._turned[id(args[1])][0], None
        return None


class OutputHead:
    """The output layer of a problem by the names of its parameters."""

    def __init__(self, problem: Problem, weight: str) -> None:
        self.problem, self.weight = problem, weight

    def evaluate(self, batch: Any, leaves: Mapping[str, Tensor], keeps_logits: bool = True) -> HeadTerms | None:
        """One batch without its logits, but for few that are kept; None where it is not seen as it was when it was tried."""
        every = {**dict(self.problem.model.named_parameters()), **leaves}
        seen = _Linears(every, self.weight)
        try:
            with seen:
                terms = self.problem.evaluate(batch, leaves)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None  # code that looks at the values of logits; what else is wrong shows without a head too
        calls = [call for call in seen.calls if call.weight == self.weight]
        if len(calls) != 1 or not isinstance(terms, SoftmaxLoss) or terms.labels is None or not len(terms.f):
            return None
        rows = _row_numbers(terms.f)
        x = calls[0].x.reshape(-1, calls[0].x.shape[-1])
        plain = x.dtype in _DIGITS and x.dtype == every[self.weight].dtype and len(x) <= _MOST_ROWS
        if rows is None or not plain or int(rows.max()) >= len(x):
            return None
        x = x if len(rows) == len(x) and bool((rows == torch.arange(len(x), device=x.device)).all()) else x[rows]
        bias = None if calls[0].bias is None else every[calls[0].bias]
        names = (self.weight, calls[0].bias)
        return HeadTerms(
            x, every[self.weight], bias, names, terms.labels, terms.weight, terms.count, keeps_logits=keeps_logits
        )


_KNOWN: WeakKeyDictionary[Problem, OutputHead | None] = WeakKeyDictionary()


def head_of(problem: Problem) -> OutputHead | None:
    """The head of a problem with many classes, found once and shown to be one; None where there is none."""
    if problem not in _KNOWN:
        _KNOWN[problem] = _find(problem) if problem.has_outputs else None
    return _KNOWN[problem]


def _find(problem: Problem) -> OutputHead | None:
    batch = next(iter(problem.batches), None)
    if batch is None:
        return None
    few = first_examples(batch, 1) if problem.divisible else batch
    leaves = problem.leaves()
    with torch.inference_mode(False), torch.enable_grad():
        seen = _Linears({**dict(problem.model.named_parameters()), **leaves})
        with seen:
            terms = problem.evaluate(few, leaves)
        if not isinstance(terms, SoftmaxLoss) or terms.labels is None or terms.f.shape[-1] < LEAST_CLASSES:
            return None
        last = [call for call in seen.calls if call.out.shape[-1] == terms.f.shape[-1]]
        if not last or not _only_arranged(terms, last[-1].out):
            return None
        if sum(call.weight == last[-1].weight for call in seen.calls) != 1:
            return None
        found = OutputHead(problem, last[-1].weight)
        ours = found.evaluate(few, leaves)
        if ours is None or not _same_logits(ours, terms):
            return None
        try:
            ours.gradient(leaves, through_loss=True)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            return None  # a layer inside of what runs again in the backward pass is not itself there
        return found


def _only_arranged(terms: OutputLoss | ScalarLoss, out: Tensor) -> bool:
    """Whether the loss's logits are those of the layer, through nodes of the graph that pick and arrange rows only."""
    assert isinstance(terms, OutputLoss)
    node = terms.f.grad_fn
    if terms.f._backward_hooks or out._backward_hooks:
        return False
    for _ in range(64):
        if node is None or node is out.grad_fn:
            return node is not None
        name = type(node).__name__.rstrip("0123456789").removesuffix("Backward")
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        if name not in _ARRANGING or len(parents) != 1:
            return False
        node = parents[0]
    return False


def _same_logits(ours: HeadTerms, terms: SoftmaxLoss) -> bool:
    assert terms.labels is not None
    if len(ours.x) != len(terms.f) or not torch.equal(ours.labels, terms.labels):
        return False
    f = terms.f.detach()
    gap = max(float((rows.f - f[here]).abs().max()) for here, rows in ours.chunks())
    return gap <= _DIGITS.get(f.dtype, 1e-2) * float(f.abs().max())


def _row_numbers(f: Tensor) -> Tensor | None:
    """The rows of hidden states that numbered logits belong to; None where they are not numbers of rows any more."""
    rows = f[:, 0]
    whole = bool((rows == rows.round()).all()) and bool((rows >= 0).all())
    return rows.long() if whole and bool((f == rows[:, None]).all()) else None
