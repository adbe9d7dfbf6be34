"""Sixty networks that never change: none may crash the library, and no number may be wrong without a word."""

from __future__ import annotations

import pytest

from fuzz.checks import examine


# Networks may use what torch deprecates, and warnings are part of what the checks look at themselves.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(60))
def test_no_number_is_silently_wrong(seed: int) -> None:
    outcome = examine(seed)
    failures = [f"{f.outcome} {f.check}: {f.detail}" for f in outcome.of("wrong", "crashed")]
    assert not failures, f"seed {seed} ({', '.join(outcome.tags)}):\n" + "\n".join(failures)
