"""A package that is not installed is named with its extra, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesscope.errors import InputError
from hesscope.integrations.needed import base_of
from monitor.runs import monitor_of, network


def test_callbacks() -> None:
    base = base_of("no_such_trainer.callbacks", "Callback", "lightning")

    class Callback(base):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            raise AssertionError("never reached")

    with pytest.raises(InputError, match=r"needs the package no_such_trainer; got .*hesscope\[lightning\]"):
        Callback()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_trackers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesscope.monitor.sinks.find_spec", lambda package: None)
    with pytest.raises(InputError, match=rf"needs the package {name}; .*hesscope\[track\]"):
        monitor_of(network(), tmp_path / "runs", to=name)
    assert not (tmp_path / "runs").exists()
