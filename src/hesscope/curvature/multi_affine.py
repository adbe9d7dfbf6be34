"""Is the network affine in each single parameter, piece by piece? Read off the autograd graph.

Then the functional Hessian has a zero diagonal, and trace and diagonal of the Hessian are those of the Gauss-Newton
matrix, which are sums of squares. Linear, convolutional, pooling, ReLU and eval-mode batch-norm layers qualify; a
smooth activation, a normalisation by the input or a tied weight does not.
"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from .data import first_examples
from .losses.base import OutputLoss
from .problem import Problem

_AFFINE = frozenset(
    [
        "AccumulateGrad",
        "Add",
        "Sub",
        "Neg",
        "View",
        "Reshape",
        "UnsafeView",
        "ReshapeAlias",
        "T",
        "Transpose",
        "Permute",
        "Expand",
        "Sum",
        "Mean",
        "Cat",
        "Stack",
        "Slice",
        "Select",
        "Index",
        "IndexSelect",
        "Gather",
        "ConstantPadNd",
        "Clone",
        "ToCopy",
        "Unsqueeze",
        "Squeeze",
        "Alias",
        "AvgPool1D",
        "AvgPool2D",
        "AvgPool3D",
        "MkldnnAdaptiveAvgPool2D",
        "AdaptiveAvgPool2D",
        "AdaptiveAvgPool3D",
        "Split",
        "SplitWithSizes",
        "Unbind",
        "Repeat",
        "Flip",
        "Roll",
        "AsStrided",
        "Embedding",
        "MaskedFill",
        "UpsampleNearest2D",
        "Copies",
        "CopySlices",
        "Detach",
        "Im2Col",
        "Unfold",
        "Rsub",
    ]
)
_PIECEWISE = frozenset(
    [
        "Relu",
        "LeakyRelu",
        "Threshold",
        "Hardtanh",
        "Abs",
        "MaxPool2DWithIndices",
        "MaxPool3DWithIndices",
        "MaxPool1D",
        "Max",
        "Min",
        "Amax",
        "Amin",
        "Clamp",
        "Hardshrink",
        "Softshrink",
        "Minimum",
        "Maximum",
        "AdaptiveMaxPool2D",
        "Where",
        "Sort",
        "Topk",
    ]
)
# The places, among a node's inputs, of the two factors of a product.
_PRODUCTS = {
    "Mul": (0, 1),
    "Mm": (0, 1),
    "Bmm": (0, 1),
    "Mv": (0, 1),
    "Dot": (0, 1),
    "Addmm": (1, 2),
    "Baddbmm": (1, 2),
    "Addmv": (1, 2),
    "Linear": (0, 1),
    "Convolution": (0, 1),
    "MkldnnConvolution": (0, 1),
    "NativeBatchNorm": (0, 1),
    "CudnnBatchNorm": (0, 1),
    "PreluKernel": (0, 1),
    "Div": (0, 1),
}


# Nonlinear in their first input, affine in the others (weight and bias).
_NORMALISATIONS = frozenset({"NativeLayerNorm", "NativeGroupNorm"})


def curved_parameters(problem: Problem) -> frozenset[str]:
    """The parameter tensors in which some output is not piecewise affine: outside them R has zero diagonal blocks."""
    names = list(problem.parameters)
    if not problem.has_outputs:
        return frozenset(names)
    if any(isinstance(m, _NormBase) and not m.track_running_stats for m in problem.model.modules()):
        return frozenset(names)  # its statistics come from the input
    leaves = problem.leaves()
    rows = problem.evaluate(first_examples(next(iter(problem.batches)), 2), leaves)
    assert isinstance(rows, OutputLoss)
    place_of = {id(leaf): index for index, leaf in enumerate(leaves.values())}
    return frozenset(names[index] for index in _curved(rows.f, place_of) if index >= 0)


def is_multi_affine(problem: Problem) -> bool:
    """Whether every output is piecewise affine in each parameter tensor on its own."""
    return not curved_parameters(problem)


def _curved(output: Tensor, place_of: dict[int, int]) -> set[int]:
    """Walk the graph from the leaves up, carrying the set of parameters each node depends on."""
    none: frozenset[int] = frozenset()
    depends: dict[Any, frozenset[int]] = {}
    curved: set[int] = set()
    for node in _inputs_first(output.grad_fn):
        inputs = [depends.get(parent, none) for parent, _ in node.next_functions]
        name = re.sub(r"Backward\d*$", "", node.name().rsplit("::", 1)[-1])
        if hasattr(node, "variable"):  # a leaf of the graph
            depends[node] = frozenset({place_of.get(id(node.variable), -1)})
            continue
        if name in _PRODUCTS:
            i, j = _PRODUCTS[name]
            first, second = (inputs[k] if k < len(inputs) else none for k in (i, j))
            curved |= second if name == "Div" else first & second
        elif name in _NORMALISATIONS:
            curved |= inputs[0]
        elif name not in _AFFINE and name not in _PIECEWISE:
            curved |= none.union(*inputs)
        depends[node] = none.union(*inputs)
    return curved


def _inputs_first(root: Any) -> list[Any]:
    """Every node below `root`, each after its inputs."""
    order: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if node is None or (node in seen and not expanded):
            continue
        if expanded:
            order.append(node)
            continue
        seen.add(node)
        stack.append((node, True))
        stack.extend((parent, False) for parent, _ in node.next_functions)
    return order
