"""Two gloo processes, each with its part of the data and of every vector, against one process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import hesscope as hs


def make_problem(part: slice, distributed: bool) -> hs.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 5)).double()
    x, y = torch.randn(50, 6).double(), torch.randint(0, 5, (50,))
    return hs.Problem.of(model, "cross_entropy", (x[part], y[part]), distributed=distributed)


def analyse(problem: hs.Problem) -> dict[str, np.ndarray]:
    H, G = hs.Hessian(problem), hs.GaussNewton(problem)
    v = H.layout.draw(hs.Rng(3), 1, "normal", H.dtype, H.device)
    pairs = hs.eigenpairs(H, k=4, tol=1e-8)
    density = hs.spectral_density(H, probes=2, steps=20, tol=0)
    return {
        "loss": np.array(problem.loss_value()),
        "hessian": H.layout.gather(H @ v).numpy(),
        "gauss_newton": G.layout.gather(G @ v).numpy(),
        "values": np.asarray(pairs.values),
        "vectors": H.layout.gather(pairs.vectors).abs().numpy(),
        "nodes": density.nodes,
        "trace": np.array(float(hs.trace(H, tol=0.01).value)),
    }


def worker(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        problem = make_problem(slice(0, 17) if rank == 0 else slice(17, 50), distributed=True)
        found = analyse(problem)
        H = hs.Hessian(problem)
        assert H.layout.local_size == (123 if rank == 0 else 122)  # no process holds a whole Krylov vector
        np.savez(Path(folder) / f"{rank}.npz", **found)
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(  # type: ignore[attr-defined]
        worker, args=(port, str(tmp_path)), nprocs=2
    )
    single = analyse(make_problem(slice(0, 50), distributed=False))
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz", allow_pickle=False) as found:
            for name, value in single.items():
                if name == "trace":
                    assert float(found[name]) == pytest.approx(float(value), rel=0.05)
                    continue
                assert np.allclose(found[name], value, rtol=1e-7, atol=1e-9), name
