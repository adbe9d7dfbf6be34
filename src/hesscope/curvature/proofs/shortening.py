"""Long texts are proven on their beginning, where the network runs the same operations on it."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from torch import Tensor

from ..data import Batches, map_tensors, tensors_of
from ..models.evaluation import ScalarLoss
from ..problem import Problem
from .first_run import nodes_of

TOKENS = 128  # as many as attention in closed form begins with
_LONG = 3  # times as many: what is worth it


def shortened(problem: Problem) -> tuple[Problem, str]:
    """The problem on the first tokens of its texts, and a note of it; as it is where those are short, no tokens, or where
    the graph of the network is another one for few of them.

    Which operations run is what a proof of derivatives is about; a few tokens show them as well as a thousand.
    """
    batches = list(problem.batches)
    lengths = [_tokens(batch) for batch in batches]
    if not lengths or min(lengths) < _LONG * TOKENS:
        return problem, ""
    short = [map_tensors(batch, partial(Tensor.narrow, dim=1, start=0, length=TOKENS)) for batch in batches]
    try:
        same = all(_same_operations(problem, *pair) for pair in zip(batches, short, strict=True))
    except Exception:
        same = False  # a network for one length only
    if not same:
        return problem, ""
    cut = problem._copy(batches=Batches(short, inf, True))
    cut.__dict__.update({name: problem.__dict__[name] for name in ("divisible",) if name in problem.__dict__})
    return cut, f"; on the first {TOKENS} of {max(lengths)} tokens, which take the same operations"


def _tokens(batch: Any) -> int:
    """The length of texts: the second axis of every tensor of a batch, all of them integers; 0 where there is none."""
    tensors = tensors_of(batch)
    lengths = {t.shape[1] if t.ndim == 2 and not t.is_floating_point() else 0 for t in tensors}
    return lengths.pop() if len(lengths) == 1 else 0


def _same_operations(problem: Problem, whole: Any, part: Any) -> bool:
    """Whether the graphs of both are made of the same nodes in the same order, and the part counts for something."""
    found = []
    for batch in (part, whole):
        terms = problem.evaluate(batch, problem.leaves())
        if not terms.count > 0:
            return False
        output = terms.total if isinstance(terms, ScalarLoss) else terms.f
        found.append([node.name() for node in nodes_of(output)])
        del terms, output
    return found[0] == found[1] and len(found[0]) > 0
