"""Compute, explain and predict the Hessian of neural networks.

Names are loaded when they are first used, so that the theory (`hesscope.rmt`, `hesscope.closed_form`) works without
importing torch. What is public stands in `__init__.pyi`, once for type checkers and for us.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
# Name -> the module that defines it; None for what is a module itself.
_HOMES = {name.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for name in node.names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hesscope' has no attribute {name!r}")
    home = _HOMES[name]
    if home is None:
        return importlib.import_module(f".{name}", __name__)
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
