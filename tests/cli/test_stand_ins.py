"""Data that are not at hand are refused; synthetic ones take their place only when asked, and every output says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hesscope as hs
from hesscope.cli import main
from hesscope.errors import InputError
from hesscope.experiments import outcome_figures
from hesscope.results.claims import Outcome

SMALL = ("--set", "examples=16", "hidden=2", "pool=16", "pixels=16")


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HESSCOPE_DATA", raising=False)
    monkeypatch.delenv("HESSCOPE_STAND_IN", raising=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("reproduce", "dong2025.fig1"),
        ("reproduce", "wu2022.table6", "--size", "paper"),
        ("reproduce", "dong2025.trained_transformer"),
        ("check", "--preset", "lenet-cifar"),
        ("check", "--preset", "gpt-shakespeare"),
    ],
)
def test_missing_data_are_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert "must be at hand" in error
    assert "--stand-in" in error


def test_a_network_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "wu2022.fig3", "--set", "network=vgg12"]) == 2
    assert "'vgg12'" in capsys.readouterr().err
    assert main(["reproduce", "wu2022.reductions", "--set", "network=resnet20"]) == 2
    error = capsys.readouterr().err
    assert "resnet20 or resnet32 with a data folder; got 'resnet20' without one" in error
    assert "--data-dir" in error


def test_a_stand_in_is_named_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "dong2025.fig1", "--stand-in", *SMALL, "--out", "out"])
    assert "stand in for: the cifar100 data" in capsys.readouterr().out
    main(["reproduce", "dong2025.fig1", "--stand-in", *SMALL, "--out", "out", "--json"])
    assert json.loads(capsys.readouterr().out)["stand_ins"] == ["the cifar100 data"]
    outcome = Outcome.load(tmp_path / "out/dong2025-fig1.json")
    assert outcome.stand_ins == ("the cifar100 data",)
    for figure in (outcome.plot(), *outcome_figures(outcome).values()):
        assert any("stand in for: the cifar100 data" in text.get_text() for text in figure.texts)


def test_asking_ends_with_the_block() -> None:
    with hs.zoo.stand_ins() as used:
        assert hs.zoo.load("mnist", count=3).synthetic
    assert used == ["the mnist data"]
    with pytest.raises(InputError, match="mnist data must be at hand"):
        hs.zoo.load("mnist", count=3)
