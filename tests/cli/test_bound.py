"""`hesscope bound` as a user meets it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from hesscope.cli import main
from hesscope.pacbayes import Certificate
from offspring import command

FILE = """
import torch, hesscope as hs

def make_problem():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(400, 5)
    y = (x[:, 0] > 0).long()
    along = {"before": hs.Problem.of(model, "cross_entropy", (x, y))}
    torch.save(model.state_dict(), "init.pt")
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return {**along, "after": hs.Problem.of(model, "cross_entropy", (x, y))}
"""
FAST = ["--epochs", "2", "--batch-size", "100", "--draws", "800"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(FILE)
    return "net.py:make_problem"


def test_a_bound_is_printed_saved_and_the_same_from_a_file_or_a_checkpoint(
    source: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bound", source, "--init", "before", "--method", "iter", *FAST]) == 0
    text = capsys.readouterr().out
    assert "true error at most" in text
    assert "with probability 0.965" in text
    assert main(["bound", source, "--init", "init.pt", "--method", "iter", *FAST, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    saved = Certificate.load(tmp_path / "hesscope-out/bound-iter")
    assert data["bound"]["value"] == saved.bound.value
    assert f"{saved.bound.value:.4f}" in text
    assert not (tmp_path / "hesscope-out/bound-iter-state").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs the weights at initialisation"),
        (["--init", "after"], "must not depend on the training data"),
        (["--init", "missing.npz"], "must exist"),
        (["--init", "before", "--delta", "1.5"], "delta must lie strictly"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    source: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["bound", source, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_killed_command_goes_on(source: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["bound", source, "--init", "before", "--method", "iter", "--json"]
    arguments += ["--epochs", "8", "--refresh", "3", "--batch-size", "10", "--draws", "800", "--out"]
    killed = command([*arguments, "b"], tmp_path)
    state = tmp_path / "b/bound-iter-state"
    while not list(state.glob("state-0000002-*.npz")):
        assert killed.code is None, "it ended before it could be killed"
        time.sleep(0.002)
    killed.send(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert state.exists()
    found = []
    for out in ("a", "b"):
        assert main([*arguments, out]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["bound"] == found[1]["bound"]
    assert found[0]["gradients"] == found[1]["gradients"] == 320
