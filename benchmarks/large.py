"""The largest eigenvalues of H and G of a GPT, by the clock: `python -m benchmarks.large "124 M"`, two threads, a quiet machine.

`python -m benchmarks.large "124 M" DIR` is the density of H, 8 probes of 24 steps: planned, with progress; killed, it goes on from DIR.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

import hesscope as hs
from hesscope.operators import Counted

from .models import tied_gpt
from .plans import SETTINGS, status

T = TypeVar("T")
PROBES, STEPS = 8, 24


def timed(what: str, work: Callable[[], T]) -> T:
    """The work, and a line with its seconds and the most memory so far."""
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    seconds = f"{time.perf_counter() - wall:.1f} s, {time.process_time() - processor:.1f} processor s"
    print(f"{what}: {seconds}; peak {status('VmHWM') / 1e9:.1f} GB", flush=True)
    return found


def main(size: str) -> None:
    """What a user waits for, step by step."""
    model, x, y = tied_gpt(size)
    problem = timed("Problem.of", lambda: hs.Problem.of(model, "cross_entropy", (x, y)))
    v = torch.randn(problem.space.size, generator=hs.Rng(0).torch())
    for matrix in (hs.Hessian, hs.GaussNewton):
        operator = matrix(problem)
        timed(f"{matrix.__name__}, first product and its proof", lambda: operator @ v)  # noqa: B023
        for _ in range(3):
            timed(f"{matrix.__name__}, a later product", lambda: operator @ v)  # noqa: B023
        top = timed(f"{matrix.__name__}, λ_max to 2 %", lambda: hs.eigenpairs(operator, **SETTINGS, rng=0))  # noqa: B023
        residual = float(top.residuals[0] / top.values[0])
        print(f"  {top.values[0]:.8g}, residual {100 * residual:.1f} %, {top.products} products", flush=True)


def density(size: str, folder: str) -> None:
    """What was planned, every eighth product, and what came of it."""
    model, x, y = tied_gpt(size)
    problem = timed("Problem.of", lambda: hs.Problem.of(model, "cross_entropy", (x, y)))
    planned = timed("hs.plan", lambda: hs.plan(problem, "spectral_density", probes=PROBES, steps=STEPS, tol=0))
    print(planned, flush=True)
    told = Counted(hs.Hessian(problem), on_product=_every_eighth)
    found = timed(
        "density", lambda: hs.spectral_density(told, PROBES, steps=STEPS, tol=0, rng=0, resume=f"{folder}/density.npz")
    )
    print(found, flush=True)


def _every_eighth(products: int, seconds: float) -> None:
    if products % 8 == 0:
        print(f"  {products} products, {seconds:.0f} s; peak {status('VmHWM') / 1e9:.1f} GB", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    if len(sys.argv) > 2:
        density(*sys.argv[1:])
    else:
        main(*sys.argv[1:] or ("124 M",))
