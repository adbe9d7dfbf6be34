"""The package that an integration is for, or a refusal that names the extra."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import refuse


def base_of(package: str, name: str, extra: str) -> Any:
    """The class to derive from; where the package is missing, one that says so when it is made."""
    try:
        return getattr(importlib.import_module(package), name)
    except ImportError as error:
        reason = str(error)

    class Missing:
        def __init_subclass__(cls) -> None:
            cls.__init__ = _refusing  # type: ignore[method-assign]

    def _refusing(*_: Any, **__: Any) -> None:
        refuse(
            f"this callback needs the package {package.partition('.')[0]}",
            reason,
            f"Install it: pip install 'hesscope[{extra}]'.",
        )

    return Missing
