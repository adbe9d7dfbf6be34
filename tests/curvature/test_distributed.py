"""Two and three gloo processes, each with its part of the data and of every vector, against one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import start_processes

import hesscope as hs
from hesscope.errors import HesscopeError
from offspring import join


def make_problem(part: slice, distributed: bool, seed: int = 0) -> hs.Problem:
    """Cross-entropy of 50 examples, of which the last ten have ignored labels."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    torch.manual_seed(0)
    x, y = torch.randn(50, 4).double(), torch.randint(0, 3, (50,))
    y[40:] = -100
    return hs.Problem.of(model, "cross_entropy", (x[part], y[part]), distributed=distributed)


def products(problem: hs.Problem, kept: Path) -> dict[str, Any]:
    H, G = hs.Hessian(problem), hs.GaussNewton(problem)
    v = H.layout.draw(hs.Rng(3), 1, "normal", H.dtype, H.device)
    pairs = hs.eigenpairs(H, k=3, tol=1e-8)
    return {
        "loss": problem.loss_value(),
        "gradient": problem.gradient(),
        "hessian": H.layout.gather(H @ v),
        "gauss_newton": G.layout.gather(G @ v),
        "values": pairs.values,
        "vectors": H.layout.gather(torch.as_tensor(pairs.vectors)).abs(),
        "dense": hs.dense_hessian(problem),
        "sum": (H + G).dense(),
        "rectangle": H.block("0.*", "2.*").dense(),
        "block_norms": hs.block_norms(problem).norms,
        "norms of layers": hs.block_norms(problem, "layer").norms,
        "estimated norms": hs.block_norms(problem, "layer", method="stochastic").norms,
        "norms kept on disk": hs.block_norms(problem, "layer", resume=kept / "norms").norms,
        "factors kept on disk": hs.decouple(problem, "0", resume=kept / "factors").output_hessian,
        "block spectra": np.concatenate(hs.block_spectra(problem, "layer").nodes),
        "heat map": hs.heat_map(problem, 9).image,
        "sampled Fisher": hs.Fisher(problem, "mc", rng=2).dense(),
        "layer": hs.layer_hessian(problem, "2").dense(),
        "solution": H.layout.gather(torch.as_tensor(hs.solve(H + 1.0, v[:, 0], tol=1e-10).x)[:, None]),
        "check": float(hs.check(problem).passed),
    }


NOT_SUMMED: list[Callable[[hs.Problem], Any]] = [
    hs.output_block_norms,
    hs.circulant_score,
    lambda problem: hs.logit_gradients(problem, "0"),
    lambda problem: hs.predicted_output_eigenspace(problem, "0"),
    lambda problem: hs.approximate_full_eigenpairs(problem, 2),
]


def whole(op: hs.LinearOperator, part: Any) -> Any:
    return op.layout.gather(torch.as_tensor(part)).numpy()


def told(op: hs.LinearOperator, name: str, found: Any) -> dict[str, Any]:
    """A result with what it says of itself: its error, its price, and whether it is exact."""
    parts = {name: found.value, f"{name}'s error": found.stderr}
    gathered = {key: whole(op, part) if np.ndim(part) else part for key, part in parts.items()}
    return {**gathered, f"{name}'s price": found.products, f"{name} exact": found.exact}


def exactly(problem: hs.Problem) -> dict[str, Any]:
    """What one process multiplies out, since it is small."""
    H, G = hs.Hessian(problem), hs.GaussNewton(problem)
    found: dict[str, Any] = {}
    for name, op in (("H", H), ("G", G), ("2H", 2 * H)):
        found |= told(op, f"trace {name}", hs.trace(op, tol=0.02))
        found |= told(op, f"diagonal {name}", hs.diagonal(op))
    found |= told(H, "row norms", hs.row_norms(H))
    found |= told(H, "norm", hs.frobenius_norm(H)) | told(H, "rectangle", hs.frobenius_norm(H.block("0.*", "2.*")))
    found |= {"spectral norm": hs.spectral_norm(H).value, "density": hs.spectral_density(H).nodes}
    return found | {"pairs' price": hs.eigenpairs(H, 3, tol=1e-8).products}


def completed(part: slice, distributed: bool) -> dict[str, Any]:
    """What one process multiplies out once sampling turns out to cost as much: 243 parameters."""
    x, y = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).double(), torch.arange(50) % 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3)).double()
    problem = hs.Problem.of(model, "cross_entropy", (x[part], y[part]), distributed=distributed)
    H = hs.Hessian(problem)
    b = H.layout.draw(hs.Rng(3), 1, "normal", H.dtype, H.device)[:, 0]
    solved = hs.solve(H, b, method="minres", damping=0.1, tol=1e-11)
    found = told(H, "trace", hs.trace(2 * H, tol=1e-9)) | told(H, "diagonal", hs.diagonal(2 * H, tol=1e-9))
    found |= told(H, "rows", hs.row_norms(H, tol=1e-9)) | told(H, "norm", hs.frobenius_norm(H, tol=1e-12))
    found |= told(H, "closed form", hs.diagonal(H)) | {"solution": whole(H, solved.x), "steps": solved.products}
    return {f"completed {name}": value for name, value in found.items()}


def analysis(problem: hs.Problem) -> dict[str, Any]:
    found = hs.analyze(problem, hs.AnalyzeConfig(k=3, smallest=1, probes=2, steps=10, decouple=1))
    return {"largest": found.largest.values, "loss": found.loss, "blocks": found.blocks[0].norms}


def worker(rank: int, cuts: list[int], folder: str, work: Callable[..., None]) -> None:
    join(rank, len(cuts) - 1, Path(folder) / f".{work.__name__}")
    work(rank, slice(cuts[rank], cuts[rank + 1]), Path(folder))
    if dist.is_initialized():
        dist.destroy_process_group()


def save(found: dict[str, Any], path: Path) -> None:
    np.savez(path, **{name: np.asarray(value) for name, value in found.items()})


def start(cuts: list[int], folder: Path, work: Callable[..., None]) -> None:
    start_processes(worker, (cuts, str(folder), work), nprocs=len(cuts) - 1, start_method="forkserver")


def uneven_shares(rank: int, part: slice, folder: Path) -> None:
    problem = make_problem(part, distributed=True)
    assert hs.Hessian(problem).layout.local_size == (34 if rank == 0 else 33)  # no process holds a whole vector
    found = {**products(problem, folder), **analysis(problem), **exactly(problem), **completed(part, True)}
    save(found, folder / f"{rank}.npz")
    for refused in NOT_SUMMED:
        with pytest.raises(HesscopeError, match="all data in one process"):
            refused(problem)


def of_two_functions(model: nn.Module, loss: Any, part: slice, **settings: Any) -> hs.Problem:
    torch.manual_seed(0)
    x, y = torch.randn(50, 4).double(), torch.randint(0, 3, (50,))
    model = nn.Sequential(nn.Linear(4, 5), model, nn.Linear(5, 3)).double()
    return hs.Problem.of(model, loss, (x[part], y[part]), distributed=True, **settings)


DIFFERING: tuple[Callable[[int, slice], Any], ...] = (
    lambda rank, part: of_two_functions(nn.Tanh() if rank else nn.Sigmoid(), "cross_entropy", part),
    lambda rank, part: of_two_functions(nn.LeakyReLU(0.1 * (1 + rank)), "cross_entropy", part),
    lambda rank, part: of_two_functions(nn.Tanh(), nn.CrossEntropyLoss(label_smoothing=0.1 * rank), part),
    lambda rank, part: of_two_functions(nn.Tanh(), nn.CrossEntropyLoss(reduction="sum" if rank else "mean"), part),
)


def an_empty_share(rank: int, part: slice, folder: Path) -> None:
    problem = make_problem(part, distributed=True)
    save({**products(problem, folder), **exactly(problem), **completed(part, True)}, folder / f"{rank}.npz")
    with pytest.raises(HesscopeError, match="examples in every process"):
        hs.analyze(problem)
    with pytest.raises(HesscopeError, match="same model"):
        make_problem(part, distributed=True, seed=rank)
    for differing in DIFFERING:  # in nothing that is a tensor
        with pytest.raises(HesscopeError, match="must have the same model, loss and parameters"):
            differing(rank, part)
    plans = [hs.plan(problem, "eigenpairs", k=2), hs.plan(problem, "trace")]
    save({f"plan {one.task}": [one.products, one.bytes, one.seconds] for one in plans}, folder / f"plans-{rank}.npz")
    dist.barrier()
    if rank == 2:
        os._exit(0)  # dies without a word
    with pytest.raises(HesscopeError, match="every process must take part") as ended:
        problem.select("*").gradient()  # one that is not known yet
    (folder / f"ended-{rank}").write_text(str(ended.value))
    for late in (lambda: make_problem(part, distributed=True), lambda: hs.plan(problem), lambda: hs.analyze(problem)):
        with pytest.raises(HesscopeError, match="every process must take part"):
            late()
    os._exit(0)  # the group cannot be left in order any more


def compare(folder: Path, world: int, with_analysis: bool) -> None:
    single = make_problem(slice(0, 50), distributed=False)
    truth = {**products(single, folder / "single"), **(analysis(single) if with_analysis else {})}
    truth |= {**exactly(single), **completed(slice(0, 50), False)}
    exact = [truth[name] for name in truth if name.endswith(" exact")]
    assert len(exact) > 10
    assert all(exact)
    for rank in range(world):
        with np.load(folder / f"{rank}.npz", allow_pickle=False) as found:
            for name, value in truth.items():
                assert np.allclose(found[name], np.asarray(value), rtol=1e-6, atol=1e-8), name


@pytest.mark.slow
def test_two_processes_with_uneven_shares(tmp_path: Path) -> None:
    """Ignored labels are all in the second process."""
    start([0, 17, 50], tmp_path, uneven_shares)
    compare(tmp_path, 2, with_analysis=True)


@pytest.mark.slow
def test_three_processes_one_without_data_and_one_that_dies(tmp_path: Path) -> None:
    start([0, 31, 31, 50], tmp_path, an_empty_share)
    compare(tmp_path, 3, with_analysis=False)
    plans = [dict(np.load(tmp_path / f"plans-{rank}.npz", allow_pickle=False)) for rank in range(3)]
    for name, numbers in plans[0].items():
        assert numbers.min() > 0
        assert all(np.array_equal(one[name], numbers) for one in plans)
    for rank in (0, 1):
        # At once, since the connection is gone, and not only when the wait is over.
        assert "timed out" not in (tmp_path / f"ended-{rank}").read_text().lower()
