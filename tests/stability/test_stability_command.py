"""`hesscope stability` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import hesscope as hs
from hesscope.cli import main

CODE = """
import torch, hesscope as hs

def trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    x, y = torch.randn(24, 4), torch.arange(24) % 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return hs.Problem.of(model, "cross_entropy", (x, y)), optimizer

def problem():
    return trained()[0]
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[hs.Problem, Any]:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    space: dict[str, Any] = {}
    exec(CODE, space)
    problem, optimizer = space["trained"]()
    torch.save(optimizer.state_dict(), "state.pt")
    torch.save({"epoch": 3, "model": {}, "optimizer_state_dict": optimizer.state_dict()}, "checkpoint.pt")
    return problem, optimizer


def test_a_state_a_checkpoint_and_a_returned_optimiser_say_the_same(
    made: tuple[hs.Problem, Any], capsys: Capture
) -> None:
    expected = hs.stability(*made, batch_size=4)
    lines = (
        ["mine.py:problem", "--optimizer", "state.pt"],
        ["mine.py:problem", "--optimizer", "checkpoint.pt"],
        ["mine.py:trained"],
    )
    for number, line in enumerate(lines):
        assert main(["stability", *line, "--batch-size", "4", "--out", f"out{number}", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["ratio"] == pytest.approx(expected.ratio, rel=1e-5)
        assert found["critical_rate"] == pytest.approx(expected.critical_rate, rel=1e-5)
        assert "not advice" in found["critical_rate_is"]
        assert max(found["binding"]["layer"].values()) == pytest.approx(
            float(expected.binding("layer").share.max()), rel=1e-3
        )
    assert {path.name for path in Path("out0").iterdir()} >= {"stability.json", "stability.npz", "stability.png"}
    assert main(["show", "out0/stability.json"]) == 0
    assert "a ceiling, not advice" in capsys.readouterr().out


def test_a_class_that_needs_no_state(made: tuple[hs.Problem, Any], capsys: Capture) -> None:
    line = ["stability", "mine.py:problem", "--optimizer", "SGD:lr=0.1,momentum=0.9,nesterov=true", "--out", "out"]
    assert main(line) == 0
    text = capsys.readouterr().out
    sharpness = float(hs.eigenpairs(made[0], 1, tol=1e-6).values[0])
    edge = 2 * 1.9 / (2.8 * 0.1)
    assert f"now at {sharpness / edge:.3g} " in text
    assert "a ceiling, not advice" in text


def test_the_tied_network_of_a_preset_has_its_own_optimiser() -> None:
    from hesscope.missing_data import stand_ins
    from hesscope.zoo.presets import preset

    with stand_ins():
        trained = preset("gpt-shakespeare", steps=2)
    state = hs.read_optimizer(trained.problem, trained.optimizer)
    assert (state.name, state.rate, state.steps) == ("AdamW", 3e-3, 2)
