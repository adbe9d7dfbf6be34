"""What a run takes beside its products: the proof of its derivatives, and keeping its vectors orthogonal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ...linalg.krylov.orthogonal import project_out
from ...operators import Layout
from ..data import examples_in, first_examples
from ..losses.base import OutputLoss
from ..problem import Problem
from ..proofs.derivatives import proof_examples

_PROOF_VECTORS = 8  # of float64 that are alive at once: parameters, point, direction, gradients and their differences
_PROOF_OUTPUTS = 5  # of all outputs of its examples: logits, probabilities, slopes
_PROOF_GRADIENTS = 10  # of its examples, a product counted as what it takes
_ROWS, _COLUMNS = 1 << 21, 8  # of a basis small enough to be timed in passing


def proof_bytes(problem: Problem, batch: Any, graph_of: Callable[[int], int]) -> int:
    """What the proof of derivatives has at once, in float64; `graph_of` examples in the problem's own type."""
    if problem.proofs:
        return 0
    few, own = _examples(problem, batch), torch.finfo(problem.dtype).bits // 8
    graph = graph_of(examples_in(few) or 1) * 8 // own
    return 8 * (_PROOF_VECTORS * problem.space.size + _PROOF_OUTPUTS * _outputs(problem, few)) + graph


def proof_seconds(problem: Problem, batch: Any) -> float:
    """How long it takes, from one gradient of a few examples in the problem's own type."""
    if problem.proofs:
        return 0.0
    few = _examples(problem, batch)
    start = time.perf_counter()
    problem.batch_gradient(few, problem.leaves(), create_graph=False)
    seconds = time.perf_counter() - start
    return seconds * _PROOF_GRADIENTS * (1 if problem.dtype == torch.float64 else 2)


def _examples(problem: Problem, batch: Any) -> Any:
    return first_examples(batch, proof_examples(problem)) if problem.divisible else batch


def _outputs(problem: Problem, batch: Any) -> int:
    if not problem.has_outputs:
        return 0
    with torch.no_grad():
        terms = problem.evaluate(batch, problem.parameters)
    return terms.f.numel() if isinstance(terms, OutputLoss) else 0


def orthogonal_seconds(problem: Problem, products: int, vectors: int) -> float:
    """Of making every product orthogonal to a basis that grows to `vectors`, from a piece of such a basis."""
    rows, n = min(_ROWS, problem.space.size), problem.space.size
    layout = Layout(rows)
    known = torch.zeros(_COLUMNS, rows, dtype=problem.dtype, device=problem.device).T
    block = torch.ones(rows, 1, dtype=problem.dtype, device=problem.device)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        project_out(layout, known, block)
        times.append(time.perf_counter() - start)
    return min(times) / (rows * _COLUMNS) * n * products * vectors / 2
