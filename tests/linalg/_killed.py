"""Run one algorithm with resume, slowly enough to be killed: `python _killed.py what folder out seconds_per_product`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from hesscope.linalg import eigenpairs, spectral_density
from hesscope.operators import Counted
from linalg.cases import Rotated, network_like


def run(
    what: str, folder: str | None, pause: float = 0.0, on_product: Callable[[int, int], object] | None = None
) -> dict[str, np.ndarray]:
    op = Counted(Rotated(network_like(700)), on_product=on_product or (lambda count, _: time.sleep(pause)))
    if what == "eigenpairs":
        # A tight basis, so that restarts and the probe for copies happen too.
        found = eigenpairs(op, k=6, tol=1e-8, max_basis=20, resume=folder)
        return {"values": found.values, "vectors": found.vectors.numpy(), "products": np.array(found.products)}
    density = spectral_density(op, probes=3, steps=24, tol=0, resume=folder)
    return {"nodes": density.nodes, "weights": density.weights, "products": np.array(density.products)}


if __name__ == "__main__":
    np.savez(sys.argv[3], **run(sys.argv[1], sys.argv[2], float(sys.argv[4])))
