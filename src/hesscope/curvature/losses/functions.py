"""A function as a loss: of (outputs, targets), or of (model, batch); which of the two is found by trying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...errors import HesscopeError
from .parsing import SeparableLoss

Split = Callable[[nn.Module, Any], tuple[Any, Any]]


def is_sum_and_count(result: Any) -> bool:
    """Whether a result is (sum, count): a scalar tensor and a number."""
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor) and result[0].ndim == 0


def loss_of_function(
    function: Callable[..., Any], model: nn.Module, batch: Any, split: Split
) -> SeparableLoss | Callable[..., Any]:
    """The function as it is where it takes (model, batch), or as a loss of (outputs, targets); a model is no tensor, so
    that at most one of the two runs."""
    if batch is None:
        return function
    try:
        if is_sum_and_count(function(model, batch)):
            return function
        failure: Exception | None = None
    except HesscopeError:
        raise
    except Exception as error:
        failure = error
    try:
        outputs, targets = split(model, batch)
        if isinstance(function(outputs, targets), Tensor):
            return SeparableLoss(function)
    except HesscopeError:
        if failure is None:
            return function  # it took the model, and returned something else: the caller says what
        if not isinstance(failure, TypeError | AttributeError):
            raise failure from None  # it took the model, and failed in its own words
        raise
    except Exception as error:
        # A function of outputs does not know what to do with a model; any other failure is its own.
        if isinstance(failure, TypeError | AttributeError) and "not callable" not in str(error):
            raise
    if failure is not None:
        raise failure
    return function
