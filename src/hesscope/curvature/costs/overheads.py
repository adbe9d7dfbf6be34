"""What a run takes beside its products: the proof of its derivatives, and keeping its vectors orthogonal."""

from __future__ import annotations

import time
from typing import Any

import torch

from ...linalg.krylov.orthogonal import project_out
from ...operators import Layout
from ..data import first_examples
from ..problem import Problem

_PROOF_VECTORS = 8  # of float64 that are alive at once: parameters, point, direction, gradients and their differences
_PROOF_GRADIENTS = 24  # of a few examples, a product counted as what it takes
_PROOF_EXAMPLES = 8
_ROWS, _COLUMNS = 1 << 21, 8  # of a basis small enough to be timed in passing


def proof_bytes(problem: Problem) -> int:
    """What the proof of derivatives has at once, in float64."""
    return 0 if problem.proofs else _PROOF_VECTORS * 8 * problem.space.size


def proof_seconds(problem: Problem, batch: Any) -> float:
    """How long it takes, from one gradient of a few examples in the problem's own type."""
    if problem.proofs:
        return 0.0
    few = first_examples(batch, _PROOF_EXAMPLES) if problem.divisible else batch
    start = time.perf_counter()
    problem.batch_gradient(few, problem.leaves(), create_graph=False)
    seconds = time.perf_counter() - start
    return seconds * _PROOF_GRADIENTS * (1 if problem.dtype == torch.float64 else 2)


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
