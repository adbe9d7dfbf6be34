"""Overlap, matricisation, correspondence and permutations: definitions, bounds and enumeration."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hesscope as hs
import kron.kron_cases as cases
from hesscope.kron import correspondence, decouple, layer_hessian, matricize, model_overlap, subspace_overlap
from hesscope.kron.model_overlaps import permuted_overlaps
from hesscope.kron.subspaces import nested_overlaps
from properties import examples


def _basis(seed: int, d: int, k: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, k, generator=hs.Rng(seed).torch(), dtype=torch.float64))[0]


@examples(30)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 9), data=st.data())
def test_overlap_is_a_share_and_depends_on_the_spaces_only(seed: int, d: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, d))
    u, v = _basis(seed, d, k), _basis(seed + 1, d, k)
    value = subspace_overlap(u, v)
    assert -1e-12 <= value <= 1 + 1e-12
    turn = _basis(seed + 2, k, k) * 3.0
    assert subspace_overlap(u @ turn, v) == pytest.approx(value, abs=1e-12)
    assert subspace_overlap(v, u) == pytest.approx(value, abs=1e-12)
    assert subspace_overlap(u, u @ turn) == pytest.approx(1.0)
    assert nested_overlaps(u, v)[k - 1] == pytest.approx(value, abs=1e-12)
    if k == d:
        assert value == pytest.approx(1.0)


def test_matricize_follows_the_weight() -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(matricize(weight.reshape(-1), (2, 3)), weight)
    assert torch.equal(matricize(weight.reshape(-1), torch.nn.Linear(3, 2)), weight)
    both = torch.stack([weight.reshape(-1), -weight.reshape(-1)], 1)
    assert torch.equal(matricize(both, (2, 3)), torch.stack([weight, -weight]))
    problem, _ = cases.relu_mlp()
    assert matricize(torch.zeros(30), layer_hessian(problem, "fc1")).shape == (6, 5)


def test_correspondence_of_products_is_a_permutation() -> None:
    u, v = _basis(0, 3, 3), _basis(1, 4, 4)
    vectors = torch.einsum("ma,nb->mnab", u, v).reshape(12, 12)  # column (a, b) is u_a ⊗ v_b
    outputs = correspondence(vectors, u, side="outputs")
    inputs = correspondence(vectors, v, side="inputs")
    eye3, eye4 = torch.eye(3).double(), torch.eye(4).double()
    assert torch.allclose(outputs, eye3.repeat_interleave(4, 1), atol=1e-12)
    assert torch.allclose(inputs, eye4.repeat(1, 3), atol=1e-12)


@examples(20)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 5), n=st.integers(1, 5))
def test_correspondence_with_a_full_basis_sums_to_one(seed: int, m: int, n: int) -> None:
    vectors = _basis(seed, m * n, m * n)
    for size, side in ((m, "outputs"), (n, "inputs")):
        c = correspondence(vectors, _basis(seed + 1, size, size), side=side)
        assert c.shape == (size, m * n)
        assert torch.allclose(c.sum(0), torch.ones(m * n).double())


def test_expected_overlap_over_permutations_by_enumeration() -> None:
    m, n, k = 4, 2, 3
    u, v = _basis(3, m * n, k), _basis(4, m * n, k)
    every = [
        nested_overlaps(u, v.T.reshape(k, m, n)[:, list(order)].reshape(k, -1).T) for order in permutations(range(m))
    ]
    assert np.allclose(permuted_overlaps(u, v, m), np.mean(every, 0), rtol=1e-12)


def test_models_against_themselves_and_each_other() -> None:
    a, _ = cases.relu_mlp()
    other = a.at({name: torch.flip(p, (0,)) for name, p in a.parameters.items()})
    same = model_overlap([a, a], "fc2", k=6)
    assert np.allclose(same.measured, 1.0)
    assert np.allclose(same.factors, 1.0)
    assert same.linear[0] == pytest.approx(np.minimum(np.arange(1, 7) / 6, 1))
    found = model_overlap([a, other, a], "fc2", k=6)
    assert found.pairs == ((0, 1), (0, 2), (1, 2))
    assert found.measured.shape == (3, 6)
    assert np.allclose(found.measured[0], found.measured[2])
    h, g = (torch.linalg.eigh(decouple(p, "fc2").exact.dense())[1].flip(1)[:, :6] for p in (a, other))
    assert np.allclose(found.measured[0], nested_overlaps(h, g), atol=1e-7)
    tau = torch.linalg.eigvalsh(decouple(a, "fc2").output_hessian)
    gamma = torch.linalg.eigvalsh(decouple(a, "fc2").input_autocorrelation)
    assert found.reach[0] == int((tau * gamma[-1] > tau[-1] * gamma[-2]).sum())
    assert found.premise == all(r == 6 for r in found.reach)
    assert 1 <= found.peak <= 6
