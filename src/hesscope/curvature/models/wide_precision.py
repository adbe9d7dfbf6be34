"""Run a network in float64 throughout, also where it asks for less: autocast, casts and fresh float32 tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = {Tensor.float: torch.float32, Tensor.half: torch.float16, Tensor.bfloat16: torch.bfloat16}


class InFloat64(TorchFunctionMode):
    """Whatever floating-point type a network asks for, it gets float64; autocast is switched off.

    Derivatives can then be compared with differences to many digits, whatever precision the network trains in.
    `narrowed` is the lowest precision that the network asked for on data that depends on the parameters, if it did;
    `needed` tells whether anything at all had to be widened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.narrowed: torch.dtype | None = None
        self.needed = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        of_parameters = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        if func in CASTS:
            self.needed = True
            self._note(CASTS[func], of_parameters)
            return args[0].double()
        args = tuple(self._wide_type(a, of_parameters) for a in args)
        kwargs = {key: self._wide_type(value, of_parameters) for key, value in (kwargs or {}).items()}
        device = next((a.device.type for a in args if isinstance(a, Tensor)), "cpu")
        if torch.is_autocast_enabled(device):
            self.needed = True
            self._note(torch.get_autocast_dtype(device), of_parameters)
            with torch.autocast(device, enabled=False):
                result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if type(result) in (tuple, list):  # and not, say, a shape
            return type(result)(self._wide(part) for part in result)
        return self._wide(result)

    def _wide_type(self, argument: Any, of_parameters: bool) -> Any:
        if isinstance(argument, torch.dtype) and argument in _NARROW:
            self.needed = True
            self._note(argument, of_parameters)
            return torch.float64
        return argument

    def _note(self, dtype: torch.dtype, of_parameters: bool) -> None:
        if of_parameters and (self.narrowed is None or torch.finfo(dtype).eps > torch.finfo(self.narrowed).eps):
            self.narrowed = dtype

    def _wide(self, result: Any) -> Any:
        if isinstance(result, Tensor) and result.dtype in _NARROW:
            self.needed = True
            return result.double()
        return result
