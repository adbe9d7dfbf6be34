"""Models that `fully_shard` and DDP have wrapped, in two gloo processes, against the plain model in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hesscope as hs
from curvature.test_distributed import start
from hesscope.curvature.models import parts
from hesscope.errors import InputError


class Tied(nn.Module):
    """A norm, a buffer, and a matrix that is used twice; five rows do not divide by two processes."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 5), nn.LayerNorm(5)
        self.inner = nn.Sequential(nn.Linear(5, 5), nn.Tanh())
        self.last = nn.Linear(5, 5)
        setattr(self.last, "weight", self.inner[0].weight)  # noqa: B010
        self.register_buffer("scale", torch.full((1,), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.inner(self.norm(self.first(x)))
        return self.last(hidden) * self.scale


def model() -> Tied:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tied()


def data(part: slice) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(20, 4, generator=generator)[part], torch.randint(0, 5, (20,), generator=generator)[part]


def sharded() -> Any:
    made, mesh = model(), init_device_mesh("cpu", (2,))
    for part in (made.first, made.norm):
        fully_shard(part, mesh=mesh)
    return fully_shard(made, mesh=mesh)


def results(problem: hs.Problem) -> dict[str, Any]:
    H = hs.Hessian(problem)
    return {
        "loss": problem.loss_value(),
        "hessian": H.dense(),
        "values": hs.eigenpairs(H, k=3, tol=1e-6).values,
    }


def wrapped(rank: int, part: slice, folder: Path) -> None:
    parts.SMALL = 6  # so that weights are spread, and biases are not
    theirs = sharded()
    with pytest.raises(InputError, match="needs distributed=True"):
        hs.Problem.of(theirs, "cross_entropy", data(part))
    before, kinds = theirs(data(part)[0]).detach(), [type(p) for p in theirs.parameters()]
    problem = hs.Problem.of(theirs, "cross_entropy", data(part), distributed=True)
    found = results(problem)
    assert problem.spread is not None  # nothing has asked for whole parameters
    assert all(
        p.numel() < 20
        for name, p in problem.spread.exchange.parts.items()
        if name != ("first", "inner.0")[rank] + ".weight"
    )
    alone = hs.Problem.of(theirs, "cross_entropy", data(slice(0, 20 * rank)), distributed=True)  # the first has no data
    found |= {"alone": hs.Hessian(alone).dense(), "functional": hs.FunctionalHessian(problem).dense()}
    found |= {"gauss-newton": hs.GaussNewton(problem).dense(), "gradient": problem.gradient()}
    assert getattr(problem, "spread", 0) is None  # these have
    assert [type(p) for p in theirs.parameters()] == kinds  # theirs is sharded as it was, and runs
    assert torch.equal(theirs(data(part)[0]).detach(), before)
    theirs(data(part)[0]).sum().backward()
    parallel = results(
        hs.Problem.of(nn.parallel.DistributedDataParallel(model()), "cross_entropy", data(part), distributed=True)
    )
    np.savez(folder / f"{rank}.npz", **{f"sharded {k}": np.asarray(v) for k, v in found.items()},
             **{f"parallel {k}": np.asarray(v) for k, v in parallel.items()})  # fmt: skip
    dist.barrier()


@pytest.mark.slow
def test_two_processes_have_the_numbers_of_one(tmp_path: Path) -> None:
    start([0, 7, 20], tmp_path, wrapped)
    problem = hs.Problem.of(model(), "cross_entropy", data(slice(0, 20)))
    truth = results(problem)
    more = {"alone": truth["hessian"], "functional": hs.FunctionalHessian(problem).dense()}
    more |= {"gauss-newton": hs.GaussNewton(problem).dense(), "gradient": problem.gradient()}
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz", allow_pickle=False) as found:
            for kind in ("sharded", "parallel"):
                for name, value in (truth | more if kind == "sharded" else truth).items():
                    expected = np.asarray(value)
                    gap = np.abs(found[f"{kind} {name}"] - expected).max()
                    assert gap <= 1e-6 * np.abs(expected).max(), (kind, name)
