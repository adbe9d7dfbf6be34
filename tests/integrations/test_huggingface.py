"""Hugging Face models: every number against dense double backward of the model's own loss, in float64."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from torch import Tensor, nn

import hesscope as hs
from hesscope.errors import InputError
from tiny_models import (
    CASES,
    Batch,
    Case,
    batches_of,
    bert,
    dense_gauss_newton,
    dense_truth,
    gpt2,
    llama,
    lora,
    seeded,
    t5,
    text,
    trained,
    vit,
)

EXACT = 1e-10


def close(found: Any, truth: Any) -> bool:
    """Equal to 1e-10 of the largest entry."""
    a, b = np.asarray(found, dtype=float), np.asarray(truth, dtype=float)
    return a.shape == b.shape and float(np.abs(a - b).max()) <= EXACT * float(np.abs(b).max())


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_everything_is_that_of_the_models_own_loss(case: Case) -> None:
    model, batches = seeded(case.make), batches_of(case)
    loss, truth = dense_truth(copy.deepcopy(model), case, batches)
    problem = hs.Problem.of(model, data=batches)
    assert problem.space.size == sum(p.numel() for p in trained(model))
    assert problem.loss_value() == pytest.approx(loss, rel=EXACT)
    H, G = hs.Hessian(problem), hs.GaussNewton(problem)
    assert close(H.dense(), truth)
    assert close(G.dense(), dense_gauss_newton(copy.deepcopy(model), case, batches))
    _agrees(hs.trace(H), np.array(float(truth.trace())))
    _agrees(hs.diagonal(H), truth.diagonal().numpy())
    pairs = hs.eigenpairs(H, k=3, tol=1e-12)
    values = np.linalg.eigvalsh(truth.numpy())
    assert close(pairs.values, np.sort(values[np.argsort(-np.abs(values))[:3]])[::-1]) or close(
        pairs.values, np.sort(values)[::-1][:3]
    )
    partition = hs.Partition.by("tensor", problem)
    found = hs.block_norms(problem, partition)
    labels = partition.labels
    blocks = [[float(truth[labels == a][:, labels == b].norm()) for b in range(partition.count)] for a in range(partition.count)]  # fmt: skip
    assert found.exact
    assert close(found.norms, blocks)


def _agrees(found: Any, truth: Any) -> None:
    """Exact to 1e-10; an estimate within its error bar, for models of more than 200 parameters."""
    if found.exact:
        assert close(found.value, truth)
    else:
        assert np.all(np.abs(found.value - truth) <= 5 * np.asarray(found.stderr) + 1e-12)
