"""Plans against runs: the largest eigenvalue of a GPT, by `hs.plan` before and by the run itself, each size in its own process.

By processor seconds of one thread, so that a busy machine changes nothing; `python -m benchmarks.plans "124 M"` for one size.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import hesscope as hs

from .models import TIED, tied_gpt
from .peers import curvlinops_hessian, eigenthings_hessian
from .timing import Row

SETTINGS = {"k": 1, "tol": 0.02}


def rows() -> list[Row]:
    found = []
    for size in TIED:
        took = _in_own_process("ours", size)
        peers = {name: _in_own_process(name, size) for name in ("curvlinops", "hessian-eigenthings")}
        seconds, memory = took["planned seconds"] / took["seconds"], took["planned bytes"] / took["bytes"]
        ours = f"planned {_said(took, 'planned ')}; took {_said(took)}"
        beside = [f"{name} {_product(one)}" for name, one in peers.items()]
        worst = max(seconds, 1 / seconds, memory, 1 / memory)
        note = f"{took['products']} products (planned {took['planned products']}), one of them {_product(took)}"
        found.append(
            Row(f"largest eigenvalue to 2 %, GPT of {size}, 1,024 tokens", ours, "; ".join(beside), worst,
                "plan within a factor of 1.5", worst <= 1.5, note)
        )  # fmt: skip
    return found


def _said(found: dict[str, Any], before: str = "") -> str:
    return f"{found[before + 'seconds']:.0f} s, {found[before + 'bytes'] / 1e9:.2f} GB"


def _product(found: dict[str, Any]) -> str:
    if "error" in found:
        return f"cannot: {found['error']}"
    return f"{found['product seconds']:.2g} s and {found['product bytes'] / 1e9:.2f} GB a product"


def _in_own_process(what: str, size: str) -> dict[str, Any]:
    out = subprocess.run([sys.executable, "-m", "benchmarks.plans", size, what], capture_output=True, text=True)
    if out.returncode:
        return {"error": (out.stderr.strip().splitlines() or [f"ended with {out.returncode}"])[-1][:90]}
    found: dict[str, Any] = json.loads(out.stdout.strip().splitlines()[-1])
    return found


def status(key: str) -> int:
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


class Peak:
    """Processor seconds, and bytes beyond those that were there."""

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier steps freed is theirs
        Path("/proc/self/clear_refs").write_text("5")
        self.before, self.start = status("VmRSS"), time.process_time()

    def found(self) -> tuple[float, int]:
        return time.process_time() - self.start, status("VmHWM") - self.before


def _ours(size: str) -> dict[str, Any]:
    time.perf_counter = time.process_time  # what hs.plan looks at
    model, x, y = tied_gpt(size)
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    start = time.process_time()
    plan = hs.plan(problem, "eigenpairs", **SETTINGS)
    planning = time.process_time() - start
    problem = hs.Problem.of(model, "cross_entropy", (x, y))
    run = Peak()
    H = hs.Hessian(problem)
    found = hs.eigenpairs(H, **SETTINGS)
    seconds, size_of_run = run.found()
    v = torch.randn(problem.space.size)
    one = Peak()
    H @ v
    product = one.found()
    return {
        "parameters": problem.space.size, "planning": planning, "planned seconds": plan.seconds,
        "planned bytes": plan.bytes, "planned products": plan.products, "seconds": seconds, "bytes": size_of_run,
        "products": found.products, "value": float(found.values[0]), "product seconds": product[0],
        "product bytes": product[1] + H._engine.kept_bytes,
    }  # fmt: skip


def _peer(name: str, size: str) -> dict[str, Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    model, x, y = tied_gpt(size)
    v = torch.randn(sum(p.numel() for p in model.parameters()))
    make = {"curvlinops": curvlinops_hessian, "hessian-eigenthings": eigenthings_hessian}[name]
    with sdpa_kernel(SDPBackend.MATH):
        run = Peak()
        operator = make(model, [(x, y)])
        operator @ v if name == "curvlinops" else operator.matvec(v)
        first = run.found()
        again = Peak()
        operator @ v if name == "curvlinops" else operator.matvec(v)
    return {"product seconds": again.found()[0], "product bytes": first[1]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    which = sys.argv[2] if len(sys.argv) > 2 else "ours"
    print(json.dumps(_ours(sys.argv[1]) if which == "ours" else _peer(which, sys.argv[1])))
