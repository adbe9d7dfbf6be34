"""Every kind of layer, one file each; a new kind is a file here, a line in `KINDS` and a row of the tests' table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .base import Kind as Kind
from .base import MatrixKind as MatrixKind
from .base import Roles as Roles
from .convolution import Convolution
from .embedding import Embedding
from .linear import InputMajorLinear, Linear
from .linear import is_input_major as is_input_major
from .multihead_attention import attention as attention
from .normalisation import Normalisation
from .recurrent import Recurrent
from .transposed_convolution import TransposedConvolution

_INPUT_MAJOR = InputMajorLinear()
KINDS: tuple[Kind, ...] = (
    Linear(),
    _INPUT_MAJOR,
    Convolution(),
    TransposedConvolution(),
    Embedding(),
    Normalisation(),
    Recurrent(),
)
BY_FUNCTION: dict[Callable[..., Any], Kind] = {function: kind for kind in KINDS for function in kind.functions}


def kind_of_module(module: nn.Module) -> Kind | None:
    """The kind that torch's own modules of this type are, for naming rows; what they really do is seen when they run."""
    if is_input_major(module):
        return _INPUT_MAJOR
    return next((kind for kind in KINDS if isinstance(module, kind.modules)), None)


def neuron_axis(module: nn.Module, parameter: str) -> int | None:
    """Which axis of a module's parameter counts neurons, channels or tokens; None where there is none."""
    if isinstance(module, nn.MultiheadAttention):
        return 0 if parameter.startswith(("in_proj", "q_proj", "k_proj", "v_proj")) else None
    kind = kind_of_module(module)
    return None if kind is None else kind.neuron_axis(parameter)
