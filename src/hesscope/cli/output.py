"""What a command gives back: lines for people, data for machines, an exit code."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class CommandOutput:
    """`lines` are printed, or `data` as JSON; `ok` decides between exit codes 0 and 1."""

    lines: list[str]
    data: dict[str, Any]
    ok: bool = True
    files: list[Path] = field(default_factory=list)

    def text(self) -> str:
        written = [f"Wrote {path}" for path in self.files]
        return "\n".join([*self.lines, *written])

    def json(self) -> str:
        body = {"ok": self.ok, **self.data, "files": [str(path) for path in self.files]}
        return json.dumps(plain(body), allow_nan=False)


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts only; what is not finite becomes null."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return str(value)
