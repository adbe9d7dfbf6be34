"""One algorithm with resume, slowly enough to be killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hesscope.linalg import diagonal, eigenpairs, row_norms, solve, spectral_density, trace
from hesscope.operators import Counted
from hesscope.partition import Partition
from hesscope.rng import Rng
from hesscope.structure import block_norms
from linalg.cases import Rotated, network_like


def run(
    what: str, folder: str | None, pause: float = 0.0, on_product: Callable[[int, int], object] | None = None
) -> dict[str, np.ndarray]:
    values = network_like(700)
    op = Counted(
        Rotated(abs(values) if what == "xnystrace" else values),
        on_product=on_product or (lambda count, _: time.sleep(pause)),
    )
    if what == "eigenpairs":
        # A tight basis, so that restarts and the probe for copies happen too.
        pairs = eigenpairs(op, k=6, tol=1e-8, max_basis=20, resume=folder)
        return {"values": pairs.values, "vectors": np.asarray(pairs.vectors), "products": np.array(pairs.products)}
    if what in ("density", "chebyshev"):
        method: Any = "slq" if what == "density" else what
        density = spectral_density(op, probes=3, steps=24, tol=0, method=method, resume=folder)
        return {"nodes": density.nodes, "weights": density.weights, "products": np.array(density.products)}
    if what in ("blocks", "sampled blocks"):
        partition = Partition(torch.arange(700) // 90, tuple(map(str, range(8))), ("all",) * 8)
        how: Any = "exact" if what == "blocks" else "stochastic"
        norms = block_norms(op, partition, method=how, resume=folder)
        return {"norms": norms.norms, "stderr": norms.stderr, "products": np.array(norms.products)}
    if what in ("cg", "minres"):
        b = torch.randn(700, generator=Rng(2).torch(), dtype=torch.float64)
        method = what
        solved = solve(op, b, method=method, damping=0.5, tol=1e-9, resume=folder)
        products = np.array(solved.products)
        return {"x": solved.x.numpy(), "residual": np.array(solved.residual), "products": products}
    if what in ("diagonal", "row_norms"):
        found = (diagonal if what == "diagonal" else row_norms)(op, tol=0.003, resume=folder)
    else:
        method = what
        found = trace(op, 0.002 if what != "hutchinson" else 0.01, method=method, resume=folder)
    numbers = {"value": np.array(found.value), "stderr": np.array(found.stderr)}
    return {**numbers, "products": np.array(found.products)}
