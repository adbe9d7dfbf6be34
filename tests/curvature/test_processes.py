"""A problem over two processes: empty shares, shares where nothing counts, and models that must be the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes

import hesscope as hs
from hesscope.errors import InputError
from offspring import join


def data() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 3, generator=draw).double(), torch.randint(0, 2, (30,), generator=draw)
    y[20:] = -100  # nothing counts in the last third
    return x, y


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def quartic(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.pow(4).sum(-1) * (targets >= 0)


def numbers(problem: hs.Problem) -> list[Any]:
    gradient = problem.gradient()
    return [problem.loss_value(), float(problem.divisible), *problem.totals, *gradient.tolist()]


def share(loss: Any, part: slice) -> list[Any]:
    x, y = data()
    return numbers(hs.Problem.of(network(), loss, (x[part], y[part]), distributed=dist.is_initialized()))


def worker(rank: int, folder: str) -> None:
    join(rank, 2, Path(folder) / ".together")
    try:
        found = {
            "ignored": share("cross_entropy", slice(0, 20) if rank == 0 else slice(20, 30)),
            "empty": share("cross_entropy", slice(0, 30) if rank == 1 else slice(30, 30)),
            "empty, a function": share(quartic, slice(0, 30) if rank == 0 else slice(30, 30)),
            "uneven": share("cross_entropy", slice(0, 3) if rank else slice(3, 30)),
        }
        np.savez(Path(folder) / f"{rank}.npz", **{name: np.array(values) for name, values in found.items()})
        x, y = data()
        with pytest.raises(InputError, match="every process must hold the same model"):
            hs.Problem.of(network(seed=rank), "cross_entropy", (x, y), distributed=True)
    finally:
        dist.destroy_process_group()


def test_two_processes_with_uneven_shares_are_one(tmp_path: Path) -> None:
    start_processes(worker, (str(tmp_path),), nprocs=2, start_method="forkserver")
    everything = slice(0, 30)
    single = {
        name: share(quartic if "function" in name else "cross_entropy", everything)
        for name in ("ignored", "empty", "empty, a function", "uneven")
    }
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz", allow_pickle=False) as found:
            for name, values in single.items():
                assert np.allclose(found[name], values, rtol=1e-10, atol=1e-12), (rank, name)
