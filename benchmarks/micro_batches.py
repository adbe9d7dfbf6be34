"""Products at 1,024 tokens and at eight times as many, one sequence at a time, in the memory that the first take.

`python -m benchmarks.micro_batches "124 M" 2GB`; the rest of the graphs goes to a file, or is built again (`0`: for every product).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from typing import Any

import torch

import hesscope as hs

from .models import tied_gpt
from .plans import status

SEQUENCES = 8


def _products(size: str, memory: str, sequences: int, which: str) -> dict[str, Any]:
    model, x, y = tied_gpt(size, sequences)
    problem = hs.Problem.of(model, "cross_entropy", (x, y), batch_size=1, memory=memory)
    operator = {"Hessian": hs.Hessian, "Gauss-Newton": hs.GaussNewton}[which](problem)
    v = torch.randn(problem.space.size)
    begin = time.process_time()
    operator @ v
    first = time.process_time() - begin
    times, walls = [], []
    for _ in range(2):
        wall, begin = time.perf_counter(), time.process_time()
        operator @ v
        times.append(time.process_time() - begin)
        walls.append(time.perf_counter() - wall)
    file = operator._engine._file
    return {
        "first": first, "seconds": min(times), "wall": min(walls), "bytes": status("VmHWM"),
        "kept": operator._engine.kept_batches, "file": 0 if file is None else file.size,
    }  # fmt: skip


def _run(size: str, memory: str, sequences: int, which: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.micro_batches", size, memory, str(sequences), which]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True).strip().splitlines()[-1])
    return found


def compare(size: str, memory: str) -> None:
    """Print the cost of eight sequences in those of one, and the peaks."""
    for which in ("Hessian", "Gauss-Newton"):
        one, many = _run(size, memory, 1, which), _run(size, memory, SEQUENCES, which)
        print(
            f"{which}, GPT of {size}, memory={memory}: {one['seconds']:.3g} s a product (first {one['first']:.3g}, wall "
            f"{one['wall']:.3g}), {one['bytes'] / 1e9:.2f} GB; {SEQUENCES} sequences {many['seconds']:.3g} s (first "
            f"{many['first']:.3g}, wall {many['wall']:.3g}), {many['bytes'] / 1e9:.2f} GB, {many['kept']} kept, of which "
            f"{many['file'] / 1e9:.2f} GB in a file: {many['seconds'] / one['seconds'] / SEQUENCES:.3f} of {SEQUENCES} times",
            flush=True,
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) > 3:
        print(json.dumps(_products(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])))
    else:
        compare(sys.argv[1], sys.argv[2])
