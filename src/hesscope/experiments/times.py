"""How long experiments take on two cores of a laptop, in seconds: what is said before one starts.

Quick and default sizes were timed (`docs/outcomes`); paper sizes that nobody ran are reckoned from them, by the number of
epochs, examples, networks and products.
"""

from __future__ import annotations

SECONDS: dict[str, tuple[float, float, float]] = {}


def expected_seconds(name: str, size: str) -> float | None:
    """Of one seed; None where nothing is known."""
    found = SECONDS.get(name)
    return None if found is None else dict(zip(("quick", "default", "paper"), found, strict=True))[size]


def in_words(seconds: float) -> str:
    """For example "40 seconds", "12 minutes", "6 hours", "9 days"."""
    for unit, length, most in (("seconds", 1.0, 90.0), ("minutes", 60.0, 5400.0), ("hours", 3600.0, 172800.0)):
        if seconds < most:
            return f"{max(1, round(seconds / length))} {unit}"
    return f"{round(seconds / 86400)} days"
