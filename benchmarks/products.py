"""Products: in gradients, where one gradient is a plain forward and backward pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import hesscope as hs

from .models import gpt, mlp
from .peers import curvlinops_hessian, eigenthings_hessian, product_jobs
from .timing import Row, interleaved


def _gradient(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> object:
    total = sum(len(y) for _, y in data)
    loss = sum(F.cross_entropy(model(x), y) * len(y) for x, y in data) / total
    return torch.autograd.grad(loss, list(model.parameters()))


def mlp_rows() -> list[Row]:
    model, x, y = mlp()
    rows = []
    for name, data in {
        "32 products, MLP 784-512-512-10, batch 1024": [(x, y)],
        "the same, data in 8 batches of 128": [(x[i : i + 128], y[i : i + 128]) for i in range(0, 1024, 128)],
    }.items():
        H = hs.Hessian(hs.Problem.of(model, "cross_entropy", data))
        V = torch.randn(H.shape[1], 32)
        v = V[:, 0].clone()
        # Long runs of each, as a processor runs short bursts faster than what comes after them.
        jobs = {"gradient": lambda d=data: [_gradient(model, d) for _ in range(32)], "ours": lambda h=H, b=V: h @ b}
        jobs |= {name: lambda j=job: [j() for _ in range(32)] for name, job in product_jobs(model, data, v).items()}
        seconds = interleaved(jobs, repeats=5)
        ours = seconds["ours"] / seconds["gradient"]
        peer, cost = _best({n: t / seconds["gradient"] for n, t in seconds.items() if n not in ("gradient", "ours")})
        rows.append(Row(name, f"{ours:.2f} gradients", f"{cost:.2f} ({peer})", ours, "<= 1.6 gradients", ours <= 1.6))
    return rows


def gpt_rows() -> list[Row]:
    model, x, y = gpt()
    rows = []
    v = torch.randn(sum(p.numel() for p in model.parameters()))
    for kind, make in (("hessian", hs.Hessian), ("ggn", hs.GaussNewton)):
        kept, rebuilt = (
            make(hs.Problem.of(model, "cross_entropy", (x, y))),
            make(hs.Problem.of(model, "cross_entropy", (x, y), memory=0)),
        )
        truth = make(hs.Problem.of(model.double(), "cross_entropy", (x, y))) @ v.double()
        model.float()
        jobs = {
            "gradient": lambda: _gradient(model, [(x, y)]),
            "kept": lambda h=kept: h @ v,
            "rebuilt": lambda h=rebuilt: h @ v,
        }
        peers = product_jobs(model, [(x, y)], v, kind)
        wrong = {n: float((job().double().reshape(-1) - truth).norm() / truth.norm()) for n, job in peers.items()}
        seconds = interleaved(jobs | peers, repeats=5)
        cost = {n: t / seconds["gradient"] for n, t in seconds.items()}
        peer, best = _best({n: cost[n] for n in peers})
        error = float(((kept @ v).double() - truth).norm() / truth.norm())
        note = f"error of a float32 product: ours {error:.0e}, " + ", ".join(f"{n} {e:.0e}" for n, e in wrong.items())
        rows.append(
            Row(
                f"{kind} product, GPT, graph kept",
                f"{cost['kept']:.2f} gradients",
                f"{best:.2f} ({peer})",
                cost["kept"],
                "<= 2 gradients",
                cost["kept"] <= 2,
                note,
            )
        )
        rows.append(
            Row(
                f"{kind} product, GPT, graph rebuilt",
                f"{cost['rebuilt']:.2f} gradients",
                f"{best:.2f} ({peer})",
                cost["rebuilt"],
                "<= 3 gradients",
                cost["rebuilt"] <= 3,
            )
        )
    peak = {
        tool: _peak_memory(tool) for tool in ("none", "ours kept", "ours rebuilt", "curvlinops", "hessian-eigenthings")
    }
    extra = {tool: value - peak["none"] for tool, value in peak.items() if tool != "none"}
    peer, least = _best({t: m for t, m in extra.items() if not t.startswith("ours")})
    for tool in ("ours kept", "ours rebuilt"):
        ratio = extra[tool] / least
        rows.append(
            Row(
                f"peak memory of a GPT Hessian product, {tool[5:]}",
                f"{extra[tool] / 1e6:.0f} MB",
                f"{least / 1e6:.0f} MB ({peer})",
                ratio,
                "<= 1.5x the best peer",
                ratio <= 1.5,
            )
        )
    return rows


def _best(found: dict[str, float]) -> tuple[str, float]:
    name = min(found, key=lambda n: found[n])
    return name, found[name]


def _peak_memory(tool: str) -> int:
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.products", tool], capture_output=True, text=True, check=True
    )
    return int(out.stdout.split()[-1])


def _measure(tool: str) -> None:
    """In a process of its own: the peak resident size of three products, in bytes."""
    import curvlinops  # noqa: F401  (so that every process carries the same libraries)
    import hessian_eigenthings  # noqa: F401

    torch.set_num_threads(2)
    model, x, y = gpt()
    v = torch.randn(sum(p.numel() for p in model.parameters()))
    if tool.startswith("ours"):
        H = hs.Hessian(hs.Problem.of(model, "cross_entropy", (x, y), memory=0 if tool.endswith("rebuilt") else None))
        for _ in range(3):
            H @ v
    elif tool != "none":
        with sdpa_kernel(SDPBackend.MATH):
            peer = {"curvlinops": curvlinops_hessian, "hessian-eigenthings": eigenthings_hessian}[tool](model, [(x, y)])
            for _ in range(3):
                peer @ v if tool == "curvlinops" else peer.matvec(v)
    # The kernel's own mark: getrusage would carry over the size of the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024)


if __name__ == "__main__":
    _measure(sys.argv[1])
