"""Claims in one line each, and the configuration of an outcome as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...results.claims import Claim, Outcome

PAPER = "Cracking the Hessian"


def at_most(statement: str, source: str, got: float, limit: float) -> Claim:
    """got <= limit."""
    return Claim(statement, f"{PAPER}, {source}", f"<= {limit:.3g}", f"{got:.3g}", bool(got <= limit))


def at_least(statement: str, source: str, got: float, limit: float) -> Claim:
    """got >= limit."""
    return Claim(statement, f"{PAPER}, {source}", f">= {limit:.3g}", f"{got:.3g}", bool(got >= limit))


def outcome(name: str, config: Any, data: dict[str, Any], *claims: Claim) -> Outcome:
    """An outcome whose config is stored as plain values."""
    return Outcome(f"cracking.{name}", asdict(config), data, claims)
