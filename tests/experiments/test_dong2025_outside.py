"""The claim "strictly block-diagonal" is measured so that it can fail: by products that know nothing of blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hesscope.curvature import Hessian
from hesscope.experiments.dong2025._measured import Loss, gaussian_data, network, problem_of
from hesscope.experiments.dong2025.fig4_7 import PROBES, outside
from hesscope.rng import Rng


@pytest.mark.parametrize("widths", [(6,), (6, 4)])
@pytest.mark.parametrize("loss", ["MSE", "CE"])
def test_what_lies_outside_the_block_of_a_class_is_that_of_the_dense_matrix(
    widths: tuple[int, ...], loss: Loss
) -> None:
    classes, rng = 5, Rng(0)
    x, y = gaussian_data(1, classes, 6, rng)
    problem = problem_of(network((*widths, classes), rng), loss, x, y, classes)
    found = outside(problem, classes, rng)
    if loss == "MSE":
        assert found == 0.0
        return
    dense = np.asarray((Hessian(problem) @ torch.eye(problem.space.size)).numpy())
    size, ratios = classes * widths[-1], []
    assert classes <= PROBES
    for label in range(classes):
        v = torch.randn(widths[-1], generator=rng.child("probe", label).torch()).numpy()
        start = problem.space.size - size + label * widths[-1]
        image = (dense[:, start : start + widths[-1]] @ v)[-size:].reshape(classes, -1)
        own = np.linalg.norm(image[label])
        ratios.append(np.linalg.norm(np.delete(image, label, 0)) / own)
    assert found == pytest.approx(max(ratios), rel=1e-4)
    assert found > 0.1
