"""What a command gives back: lines for people, data for machines, an exit code."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..tables import plain


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
        return json.dumps(_finite(plain(body)), allow_nan=False)


def _finite(value: Any) -> Any:
    """The same with null for every number that is not finite: JSON has no others."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
