"""The settings of a problem as users give them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..arguments import need_flag, shown
from ..errors import refuse

_FLOATS = (torch.float32, torch.float64, torch.bfloat16)


def check_settings(forward: Any, freeze: Any, distributed: Any) -> None:
    """Refuse settings of `Problem.of` that are none."""
    need_flag("freeze", freeze)
    need_flag("distributed", distributed)
    if forward is not None and not callable(forward):
        refuse(
            "forward must be a function",
            shown(forward),
            "Pass forward=lambda model, batch: (outputs, targets).",
        )
    if distributed and not (dist.is_available() and dist.is_initialized()):
        refuse(
            "distributed=True needs a process group",
            "no group in this process",
            "Call torch.distributed.init_process_group first, or leave distributed out.",
        )


def need_float_type(dtype: Any) -> None:
    """Refuse a type in which there are no derivatives, or in which they overflow."""
    if dtype not in _FLOATS:
        got = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else shown(dtype)
        refuse("dtype must be a floating-point type of float32's range", got, "Pass torch.float64 or torch.float32.")
