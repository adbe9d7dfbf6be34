"""Which matrix: a problem or an operator, everywhere blocks are asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import hesscope as hs
from hesscope.errors import InputError
from hesscope.operators import Dense
from structure.networks import mlp, problem

MATRICES: dict[str, Callable[[hs.Problem], hs.LinearOperator]] = {
    "hessian": hs.Hessian,
    "gauss-newton": hs.GaussNewton,
    "functional": hs.FunctionalHessian,
    "fisher": lambda p: hs.Fisher(p, "mc", samples=2),
    "empirical": lambda p: hs.Fisher(p, "empirical"),
    "difference": lambda p: hs.Hessian(p) - hs.GaussNewton(p),
    "counted": lambda p: hs.Counted(hs.Hessian(p)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_blocks_of_any_operator_are_those_of_its_dense_matrix(name: str) -> None:
    p = problem(mlp(6, 5, 3), "cross_entropy", classes=3)
    op = MATRICES[name](p)
    dense = op.dense()
    assert torch.allclose(hs.dense_hessian(op), dense, rtol=1e-9, atol=1e-12)
    partition = hs.Partition.by("layer", p)
    found = hs.block_norms(op, "layer")
    truth = [[float(dense[partition.indices(i)][:, partition.indices(j)].norm()) for j in range(2)] for i in range(2)]
    assert np.allclose(found.norms, truth, rtol=1e-8)
    assert found.exact
    top = hs.block_spectra(op, "layer").largest()
    blocks = [dense[partition.indices(i)][:, partition.indices(i)] for i in range(2)]
    assert np.allclose(top, [float(torch.linalg.eigvalsh(b)[-1]) for b in blocks], rtol=1e-8, atol=1e-12)
    assert np.allclose(hs.heat_map(op, pixels=10**6).image, dense.abs().numpy(), rtol=1e-8, atol=1e-12)


def test_a_plain_matrix_has_blocks_by_a_partition() -> None:
    matrix = torch.arange(9.0).reshape(3, 3).double()
    matrix = matrix + matrix.T
    partition = hs.Partition(torch.tensor([0, 1, 1]), ("a", "b"), ("a", "b"))
    found = hs.block_norms(Dense(matrix), partition)
    assert np.allclose(found.norms[0, 1], float(matrix[0, 1:].norm()))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: hs.block_norms(Dense(torch.eye(3))), "blocks by kind need the problem"),
        (lambda p: hs.block_norms(p.model), "Problem or an operator; got Sequential"),
        (lambda p: hs.block_norms(hs.Hessian(p), "layer", matrix="gauss_newton"), "matrix= goes with a problem"),
        (lambda p: hs.block_norms(hs.Jacobian(p), "layer"), "square, symmetric"),
        (lambda p: hs.dense_hessian("H"), "Problem or an operator; got str"),
    ],
)
def test_mix_ups_are_explained(call: Callable[[hs.Problem], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(problem(mlp(6, 5, 3), "cross_entropy", classes=3))
