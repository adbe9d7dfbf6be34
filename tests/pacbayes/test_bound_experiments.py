"""Table 10: a stopped table goes on, claims can fail, unknown rows are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hesscope.errors import FileError, InputError
from hesscope.experiments.wu2022 import table10
from hesscope.experiments.wu2022._bounds import certificates


def test_finished_methods_are_read_from_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(
        table10.EXPERIMENT.quick, methods=("base",), sgd_epochs=1, epochs=1, data_prior=False, state=str(tmp_path)
    )
    first = table10.EXPERIMENT.outcome(config)
    with pytest.raises(FileError, match="goes on with the same problem, settings and version"):
        table10.EXPERIMENT.outcome(replace(config, epochs=2))
    with pytest.raises(FileError, match="goes on with the same problem, settings and version"):
        table10.EXPERIMENT.outcome(replace(config, seed=1))
    monkeypatch.setattr("hesscope.experiments.wu2022._bounds.optimize", None)
    assert table10.EXPERIMENT.outcome(config).data["T-50"]["bound"] == first.data["T-50"]["bound"]


def test_claims_fail_when_methods_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With BASE in the place of ITER there is no margin, and the claim says so."""
    true = certificates
    monkeypatch.setattr(
        table10,
        "certificates",
        lambda prepared, methods, *rest: {m: true(prepared, ["base"], *rest)["base"] for m in methods},
    )
    config = replace(table10.EXPERIMENT.quick, methods=("base", "iter"), epochs=2, sgd_epochs=2, data_prior=False)
    claims = [
        c for c in table10.EXPERIMENT.outcome(config).claims if "iter is tighter" in c.statement and c.holds is not None
    ]
    assert claims
    assert not any(c.holds for c in claims)


def test_unknown_rows_are_refused() -> None:
    with pytest.raises(InputError, match="There are: T-50"):
        table10.EXPERIMENT.outcome(table10.Config(rows=("T-7",)))
