"""What one process holds at most, and each of two that share data, parameters and vectors: eigenpairs of a GPT.

`python -m benchmarks.processes "10.3 M" 2` for one size in two processes, by steps. Peaks are those of the system (VmHWM), less
what a process has that has only loaded torch and Hesscope and joined the others; the user's own model counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hesscope as hs

from .models import tied_gpt
from .plans import Peak, status
from .timing import Row

SETTINGS: dict[str, Any] = {"k": 1, "tol": 0.1}
SEQUENCES, TOKENS = 32, 32


def rows() -> list[Row]:
    return [_row(size, processes) for size, processes in (("1.25 M", 2), ("10.3 M", 2), ("10.3 M", 3))]


def _row(size: str, processes: int) -> Row:
    alone, each = run(size, 1)[0], run(size, processes)
    most = max(one["eigenpairs"] for one in each)
    gap = max(np.abs(np.subtract(one["values"], alone["values"])).max() for one in each) / max(alone["values"])
    ratio = most / alone["eigenpairs"]
    return Row(
        f"{SETTINGS['k']} eigenpairs, GPT of {size}, {SEQUENCES} x {TOKENS} tokens, {processes} processes",
        f"{most / 1e6:.0f} MB each", f"{alone['eigenpairs'] / 1e6:.0f} MB (one process)", ratio,
        "<= 0.6 of one process", ratio <= 0.6, f"{ratio:.2f}; eigenvalues differ by {gap:.0e}",
    )  # fmt: skip


def run(size: str, processes: int) -> list[dict[str, Any]]:
    """What every process measured, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.processes", size, str(processes), str(rank), folder],
                stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(processes)
        ]  # fmt: skip
        return [json.loads(one.communicate()[0].strip().splitlines()[-1]) for one in started]


def _measured(size: str, processes: int, rank: int, folder: str) -> dict[str, Any]:
    if processes > 1:
        dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=processes)
        fully_shard(nn.Linear(2, 2), mesh=init_device_mesh("cpu", (processes,)))  # what torch loads for it
    empty = status("VmRSS")
    model, x, y = _given(size, processes, rank)
    found: dict[str, Any] = {}
    run = Peak()
    found["model"] = status("VmRSS") - empty
    problem = hs.Problem.of(model, "cross_entropy", (x, y), distributed=processes > 1, batch_size=4)
    found["problem"] = status("VmHWM") - empty
    H = hs.Hessian(problem)
    H @ torch.ones(H.layout.local_size)
    found["first product"] = status("VmHWM") - empty
    pairs = hs.eigenpairs(H, **SETTINGS)
    found["eigenpairs"] = status("VmHWM") - empty
    found["seconds"] = run.found()[0]
    return {**found, "products": pairs.products, "values": pairs.values.tolist()}


def _given(size: str, processes: int, rank: int) -> tuple[nn.Module, Any, Any]:
    """The model as a training script leaves it, and this process's share of the texts."""
    model, x, y = tied_gpt(size, SEQUENCES)
    if processes > 1:
        mesh = init_device_mesh("cpu", (processes,))
        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=mesh)  # type: ignore[call-overload]
        fully_shard(model, mesh=mesh)
    part = slice(rank * len(x) // processes, (rank + 1) * len(x) // processes)
    return model, x[part, :TOKENS].clone(), y[part, :TOKENS].clone()


def _shown(found: dict[str, Any]) -> str:
    sizes = [f"{name} {found[name] / 1e6:.0f} MB" for name in ("model", "problem", "first product", "eigenpairs")]
    return (
        f"{', '.join(sizes)}; {found['products']} products, {found['seconds']:.0f} s, largest {found['values'][0]:.8g}"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    if len(sys.argv) > 3:
        print(json.dumps(_measured(chosen, count, int(sys.argv[3]), sys.argv[4])))
    else:
        for one in run(chosen, count):
            print(_shown(one), flush=True)
