"""The peers behind one face: products, eigenvalues, densities and traces, each as its users would call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Data = list[tuple[Tensor, Tensor]]


def curvlinops_hessian(model: nn.Module, data: Data, kind: str = "hessian") -> Any:
    import curvlinops

    make = {"hessian": curvlinops.HessianLinearOperator, "ggn": curvlinops.GGNLinearOperator}[kind]
    return make(
        model,
        nn.CrossEntropyLoss(),
        [p for p in model.parameters() if p.requires_grad],
        data,
        check_deterministic=False,
    )


def eigenthings_hessian(model: nn.Module, data: Data, kind: str = "hessian") -> Any:
    import hessian_eigenthings as he

    criterion = nn.CrossEntropyLoss()
    if kind == "ggn":
        return he.GGNOperator(model, data, he.supervised_forward, he.supervised_loss_of_output(criterion))
    return he.HessianOperator(model, data, he.supervised_loss(criterion))


def pyhessian_hessian(model: nn.Module, data: Data) -> Any:
    from pyhessian import hessian

    return hessian(model, nn.CrossEntropyLoss(), data=data[0], cuda=False)


def product_jobs(model: nn.Module, data: Data, v: Tensor, kind: str = "hessian") -> dict[str, Callable[[], Tensor]]:
    """One product by each peer; those that cannot run here are left out."""
    jobs: dict[str, Callable[[], Tensor]] = {}
    curv = curvlinops_hessian(model, data, kind)
    jobs["curvlinops"] = lambda: curv @ v
    things = eigenthings_hessian(model, data, kind)
    jobs["hessian-eigenthings"] = lambda: things.matvec(v)
    if kind == "hessian" and len(data) == 1:
        py = pyhessian_hessian(model, data)
        from pyhessian.utils import hessian_vector_product

        pieces = [
            t.view_as(p)
            for t, p in zip(v.split([p.numel() for p in model.parameters()]), model.parameters(), strict=True)
        ]
        jobs["PyHessian"] = lambda: torch.cat(
            [t.reshape(-1) for t in hessian_vector_product(py.gradsH, py.params, pieces)]
        )
    working = {}
    for name, job in jobs.items():
        try:
            with sdpa_kernel(SDPBackend.MATH):
                job()
            working[name] = _under_math(job)
        except Exception as error:
            print(f"  ({name} cannot: {type(error).__name__}: {str(error)[:90]})")
    return working


def _under_math(job: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return job()

    return run


def eigen_jobs(
    model: nn.Module, data: Data, k: int
) -> dict[str, Callable[[float], tuple[np.ndarray, np.ndarray | None]]]:
    """Top-k eigenpairs at a tolerance: (values, vectors)."""
    from scipy.sparse.linalg import eigsh

    def curv(tol: float) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = eigsh(curvlinops_hessian(model, data).to_scipy(), k=k, which="LA", tol=tol)
        return values[::-1], vectors[:, ::-1]

    def things(tol: float) -> tuple[np.ndarray, np.ndarray]:
        import hessian_eigenthings as he

        steps = {1e-3: 2 * k + 12, 1e-4: 3 * k + 20, 1e-5: 5 * k + 30, 1e-6: 8 * k + 40}[tol]
        found = he.lanczos(eigenthings_hessian(model, data), k=k, which="LA", tol=tol, max_iter=steps, seed=0)
        vectors = found.eigenvectors
        vectors = vectors.T if vectors.shape[0] == k else vectors
        return np.asarray(found.eigenvalues), np.asarray(vectors)

    return {"curvlinops + eigsh": curv, "hessian-eigenthings": things}


def density_jobs(model: nn.Module, data: Data, probes: int, steps: int) -> dict[str, Callable[[], object]]:
    """PyHessian's density calls torch.eig, which torch no longer has."""
    import curvlinops
    import hessian_eigenthings as he

    return {
        "curvlinops": lambda: curvlinops.lanczos_approximate_spectrum(
            curvlinops_hessian(model, data), steps, num_repeats=probes
        ),
        "hessian-eigenthings": lambda: he.spectral_density(
            eigenthings_hessian(model, data), num_runs=probes, lanczos_steps=steps, seed=0
        ),
    }
