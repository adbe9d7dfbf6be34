"""An outcome of this paper's experiments: its configuration as plain values, its claims judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...results.claims import Outcome
from ...results.declared import Declared, Measured, judge

PAPER = "Cracking the Hessian"


def outcome(
    name: str, config: Any, data: dict[str, Any], declared: Sequence[Declared], measured: Mapping[str, Measured]
) -> Outcome:
    """An outcome whose config is stored as plain values."""
    return Outcome(f"cracking.{name}", asdict(config), data, judge(declared, measured))
