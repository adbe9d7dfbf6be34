"""Large data in batches: of our making only where examples do not see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import refuse
from .data import Batches, examples_in, in_batches, is_example_tuple
from .losses.parsing import SeparableLoss

if TYPE_CHECKING:
    from .problem import Problem


def cut_in_batches(problem: Problem, data: Any, batch_size: int) -> Problem:
    """Tensors of more examples than that, in batches where they do not see each other; all else as it is."""
    batch: Any = next(iter(problem.batches), None)
    large = is_example_tuple(data, may_be_empty=True) and len(data[0]) > batch_size
    anywhere = problem._anywhere(large)
    if not (anywhere and problem.divisible and large):
        return problem
    cut = problem._copy(batches=Batches(in_batches(batch, batch_size), float("inf"), True))
    cut.__dict__.update({name: problem.__dict__[name] for name in ("_few", "divisible")})
    return cut


WEIGHTED = "a loss whose examples see each other, averaged over batches weighted by their examples"


def combined(problem: Problem) -> str:
    """How batches were combined where that is a choice, in words for results; else nothing."""
    loss = problem.loss
    several = isinstance(loss, SeparableLoss) and loss.coupled and not problem.batches.single
    return WEIGHTED if several else ""


def refuse_uneven_batches(problem: Problem, counts: Tensor) -> None:
    """A mean over batches of several sizes, of a loss that is none over examples, must be asked for by name.

    `counts`: how many batches there are, the sum of their sizes, and that of the squares.
    """
    loss = problem.loss
    if not isinstance(loss, SeparableLoss) or not loss.coupled or loss.named:
        return
    batches, total, squares = counts.tolist()
    if batches * squares > (1 + 1e-9) * total**2:
        refuse(
            "batches of a loss that is neither a sum nor a mean over its examples must have one size",
            f"{batches:.0f} batches of several sizes",
            "Name reduction='mean' (weighted by their examples) or reduction='sum', or drop the last, smaller batch.",
        )


def refuse_own_batches(problem: Problem, data: Any, batch_size: int) -> None:
    """Batches that Hesscope would have to make, of examples that see each other, are nobody's batches."""
    if isinstance(data, DataLoader) or not (isinstance(data, Dataset) or is_example_tuple(data)):
        return
    sizes = [examples_in(batch) or 0 for batch in problem.batches]
    cut_by_us = len(sizes) > 1 if isinstance(data, Dataset) else max(sizes, default=0) > batch_size
    if cut_by_us and not problem.divisible:
        _ = problem.totals  # a loss that is not finite has no parts, and says so itself
        for index, batch in enumerate(problem.batches):  # nor has one that draws numbers
            problem.confirm(index, problem.value_of(batch)[0])
        refuse(
            "examples must not see each other where Hesscope makes the batches",
            f"{sum(sizes)} examples whose loss is not the sum of its parts, and batches of {batch_size}",
            "Pass a DataLoader or a list with the batches you train on.",
        )
