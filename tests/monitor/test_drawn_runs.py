"""`hesscope watch` and `hesscope report` draw a run from its file alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hesscope.cli import main
from hesscope.cli.commands.watch import screen, sparkline
from hesscope.plots.run import run_picture
from hesscope.results.monitoring import MARK, MonitoredRun, Reading, load_run
from monitor.runs import monitor_of, network, train


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    model = network()
    with monitor_of(model, tmp_path, slow_every=2, batch_size=8) as monitor:
        train(model, torch.optim.Adam(model.parameters(), 0.02), 9, monitor)
    return tmp_path / "run.jsonl"


def test_watch_once(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run_file), "--once"]) == 0
    said = capsys.readouterr().out
    last = load_run(run_file).readings[-1]
    assert f"{last.sharpness:.4g}" in said
    assert "9 readings" in said
    assert "a ceiling, not advice" in said
    for word in ("trace", "batch sharpness", "binding now", "Adam at rate 0.02"):
        assert word in said


def test_watch_as_json(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last"]["step"] == 8


def test_watch_goes_on_until_stopped(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the file shows what was appended since; ctrl-C ends it."""
    looks = []

    def look(seconds: float) -> None:
        looks.append(len(load_run(run_file).readings))
        if len(looks) == 3:
            raise KeyboardInterrupt
        with open(run_file, "a") as handle:
            handle.write(json.dumps({"step": 8 + len(looks), "loss": 1.0}) + "\n")

    monkeypatch.setattr("hesscope.cli.commands.watch.time.sleep", look)
    assert main(["watch", str(run_file)]) == 0
    assert looks == [9, 10, 11]


def test_watch_before_the_first_reading_and_after_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({MARK: 1, "model": "Net", "parameters": 3}) + "\n")
    assert main(["watch", str(path), "--once"]) == 0
    assert "no reading yet" in capsys.readouterr().out
    path.write_text(path.read_text() + json.dumps({"step": 1, "error": "InputError: not finite"}) + "\n")
    assert main(["watch", str(path), "--once"]) == 0
    assert "1 readings failed; last: InputError: not finite" in capsys.readouterr().out
    assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0


def test_report_of_a_run(run_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(run_file), "-o", str(page)]) == 0
    text = page.read_text()
    for panel in run_picture(load_run(run_file)).panels:
        assert f">{panel.label}<" in text
    assert "not advice" in text


def test_a_folder_with_a_run(run_file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"epoch": 1}\n')
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0


def test_pictures_show_the_file_alone(run_file: Path) -> None:
    run = load_run(run_file)
    panels = {panel.label: panel for panel in run_picture(run).panels}
    assert set(panels) >= {"Loss", "Sharpness", "Against the edge", "Trace", "Layers that bind", "Block-diagonality"}
    curve = panels["Sharpness"].marks[0]
    assert curve.y.tolist() == run.column("sharpness").tolist()


def test_lines_of_strangers_do_not_break_a_run(run_file: Path) -> None:
    """Fields of another type or name are left out, not believed."""
    with open(run_file, "a") as handle:
        handle.write(json.dumps({"step": 99, "loss": "low", "sharpness": 2, "binding": [1], "new": {}}) + "\n")
    last = load_run(run_file).readings[-1]
    assert (last.step, last.loss, last.sharpness, last.binding) == (99, None, 2, {})


def test_one_early_spike_does_not_flatten_the_rest() -> None:
    readings = tuple(Reading(step, loss=1.0, edge_ratio=ratio) for step, ratio in enumerate((1e3, 0.1, 1.0, 0.1)))
    lines = screen(MonitoredRun("a", {}, readings))
    (ratio,) = (line for line in lines if line.startswith("preconditioned / edge, log"))
    assert "█▁▃▁" in ratio


def test_sparklines() -> None:
    assert sparkline([1.0, 1.3, 3.0], 10) == "▁▂█"
    assert sparkline([2.0, 2.0], 10) == "▁▁"
    assert len(sparkline(range(1000), 40)) == 40
