"""The command line as a user meets it: outputs, exit codes, one-line errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.problems import CNN, MLP, TRANSFORMER
from hesscope.analysis.layers import second_derivative_passes
from hesscope.cli import main
from hesscope.cli.commands.analyze import NAMES
from offspring import command
from report.samples import FAILED, sample

Capture = pytest.CaptureFixture[str]
SMALL = ["--k", "5", "--smallest", "1", "--probes", "2", "--steps", "20", "--formats", "png"]
LEAN = [*SMALL, "--no-check", "--no-gauss-newton", "--no-block-maps", "--no-per-layer", "--no-landscape"]


@pytest.fixture
def mlp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlp.py").write_text(MLP)
    return "mlp.py:make_problem"


def run_json(capsys: Capture, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def truth() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Eigenvalues of the MLP's Hessian by dense double backward through torch alone."""
    space: dict[str, Any] = {}
    exec(MLP.replace("hs.Problem.of", "tuple_of").replace("hesscope as hs", "math"), space)
    space["tuple_of"] = lambda model, loss, data: (model, data)
    model, (x, y) = space["make_problem"]()
    parameters = {name: p.detach().double() for name, p in model.named_parameters()}

    def loss(flat: torch.Tensor) -> torch.Tensor:
        pieces = dict(zip(parameters, flat.split([p.numel() for p in parameters.values()]), strict=True))
        shaped = {name: piece.view(parameters[name].shape) for name, piece in pieces.items()}
        return torch.nn.functional.cross_entropy(torch.func.functional_call(model.double(), shaped, (x.double(),)), y)

    flat = torch.cat([p.reshape(-1) for p in parameters.values()])
    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat)).numpy()


def test_analyze_writes_a_report_and_ends_in_ten_lines(mlp: str, capsys: Capture, tmp_path: Path) -> None:
    assert main(["analyze", mlp, "--out", "out", *SMALL]) == 0
    found, told = written(tmp_path / "out", NAMES)
    assert found
    assert found <= told
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:11]] == [
        *("Sharpness", "Trace", "Negative mass", "Outliers", "Gauss-Newton"),
        *("Blocks", "Kronecker", "Theory", "Cost", "Next"),
    ]
    assert (tmp_path / "out/report.html").stat().st_size > 4_000_000
    assert (tmp_path / "out/figures/spectrum.png").exists()
    assert not [path for path in (tmp_path / "out/state").iterdir() if path.name.endswith("-state")]
    exact = truth()
    assert main(["show", "out/analysis.json", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    np.testing.assert_allclose(result["largest"]["values"], exact[::-1][:5], rtol=1e-3)
    assert result["trace"]["value"] == pytest.approx(exact.sum(), rel=1e-3)
    assert result["blocks"][0]["norms"][0][0] > 0
    norm = sum(value**2 for row in result["blocks"][0]["norms"] for value in row)
    assert norm == pytest.approx((exact**2).sum(), rel=1e-3)


@pytest.mark.parametrize(("name", "text"), [("cnn", CNN), ("transformer", TRANSFORMER)])
def test_own_models_are_analysed_from_short_files(
    name: str, text: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(text.strip().splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text(text)
    code, found = run_json(capsys, "analyze", f"{name}.py:make_problem", "--out", "out", *SMALL)
    assert code == 0
    assert len(found["lines"]) == 10
    assert found["claims"][0]["holds"]
    assert found["between_layers"]["layer"] > 0
    assert found["kronecker_error"]


def test_layers_that_take_too_many_passes_are_left_out_and_named(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tagger.py").write_text(TRANSFORMER)
    code, found = run_json(capsys, "analyze", "tagger.py:make_problem", "--out", "out", *LEAN, "--most-passes", "10")
    assert code == 0
    # Eight outputs at most: one pass for each.
    assert set(found["kronecker_error"]) == {"head", "layer.self_attn.out_proj", "layer.linear2"}
    notes = json.loads(Path("out/analysis.json").read_text())["result"]["fields"]["notes"]["$tuple"]
    dear = next(note for note in notes if "--most-passes" in note)
    assert "in_proj (168 backward passes" in dear  # 24 outputs at seven positions that see each other
    assert "layer.linear1 (16 backward passes" in dear
    space: dict[str, Any] = {}
    exec(TRANSFORMER, space)
    # One per output: the tokens do not see each other behind that layer.
    assert second_derivative_passes(space["make_problem"](), "layer.linear1") == 16


def test_spectrum_of_one_matrix(mlp: str, capsys: Capture) -> None:
    code, found = run_json(capsys, "spectrum", mlp, "--k", "3", "--out", "out")
    exact = truth()
    assert code == 0
    np.testing.assert_allclose(found["largest"], exact[::-1][:3], rtol=1e-3)
    np.testing.assert_allclose(found["smallest"], exact[:3], rtol=1e-2)
    code, gauss_newton = run_json(capsys, "spectrum", mlp, "--matrix", "gauss-newton", "--out", "out")
    assert min(gauss_newton["smallest"]) > -1e-6


def test_spectrum_of_one_and_of_three_parameters(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line.py").write_text(
        "import torch, hesscope as hs\n"
        "def one(inputs=1):\n"
        "    x = torch.eye(inputs) * torch.arange(1, inputs + 1)\n"
        "    return hs.Problem.of(torch.nn.Linear(inputs, 1, bias=False), 'squared_error', (x, torch.ones(inputs, 1)))\n"
        "def three():\n"
        "    return one(3)\n"
    )
    for function, largest, smallest in (("one", [2], [2]), ("three", [6, 8 / 3], [8 / 3, 2 / 3])):
        _, data = run_json(capsys, "spectrum", f"line.py:{function}")
        assert data["largest"] == pytest.approx(largest, rel=1e-5)
        assert sorted(data["smallest"], reverse=True) == pytest.approx(smallest, rel=1e-5)


def written(folder: Path, names: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Files in a folder, and those that the names tell of."""
    kinds = (".json", ".npz", ".html", ".png", ".svg", ".pdf")
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.suffix in kinds and "state" not in path.parts[-2]
    }
    told = {str(path.relative_to(folder)) for name in names for path in folder.glob(f"{name}.*")}
    return found, told


def test_blocks_decouple_check_and_plan(mlp: str, capsys: Capture) -> None:
    code, blocks = run_json(capsys, "blocks", mlp, "--by", "tensor", "--out", "out")
    assert code == 0
    assert len(blocks["names"]) == 4
    code, layers = run_json(capsys, "decouple", mlp, "--layer", "0", "--k", "3", "--out", "out")
    assert code == 0
    assert 0 < layers["layers"][0]["frobenius_error"] < 1
    code, checked = run_json(capsys, "check", mlp)
    assert code == 0
    assert checked["verdict"]["passed"]
    code, planned = run_json(capsys, "plan", mlp, "--k", "3")
    assert code == 0
    assert planned["products"] > 0
    assert planned["bytes"] > 0


@pytest.mark.filterwarnings("default")
def test_the_plan_is_told_before_the_lines_and_what_is_left_out_after(
    mlp: str, capsys: Capture, tmp_path: Path
) -> None:
    assert main(["analyze", mlp, "--out", "out", "--budget", "1e-9s", "--no-check", *SMALL]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("Plan for 1e-09 s")
    assert "Left out for the budget of 1e-09 s" in said.out
    assert "left out for the budget" in (tmp_path / "out/report.html").read_text()


def test_landscape_along_directions_and_checkpoints(mlp: str, capsys: Capture, tmp_path: Path) -> None:
    _, found = run_json(
        capsys, "landscape", mlp, "--along", "eigenvectors", "--plane", "--points", "5", "--out", str(tmp_path)
    )
    assert [line["name"].split(" (")[0] for line in found["lines"]] == ["eigenvector 1", "eigenvector 2"]
    assert np.array(found["plane"]["losses"]).shape == (5, 5)
    assert (tmp_path / "landscape-plane.svg").exists()
    text = Path(mlp.partition(":")[0])
    text.write_text(
        text.read_text() + "\ndef several():\n    return {'a': make_problem(), 'b': make_problem().at(shifted())}\n"
        "def shifted():\n    return {n: t + 0.1 for n, t in make_problem().parameters.items()}\n"
    )
    _, found = run_json(
        capsys, "landscape", f"{text}:several", "--along", "checkpoints", "--points", "5", "--out", str(tmp_path)
    )
    assert [line["name"] for line in found["lines"]] == ["to checkpoint a"]


def test_landscape_along_a_saved_step_and_to_files_of_weights(mlp: str, capsys: Capture, tmp_path: Path) -> None:
    """A step of gradient descent is minus its rate times the gradient; a file of weights is the end of its line."""
    space: dict[str, Any] = {}
    exec(MLP, space)
    problem = space["make_problem"]()
    weights = {name: tensor.detach() + 0.1 for name, tensor in problem.parameters.items()}
    torch.save(weights, tmp_path / "there.pt")
    groups = [{**torch.optim.SGD([torch.zeros(1)], lr=0.5).param_groups[0], "params": [0, 1, 2, 3]}]
    torch.save({"state": {}, "param_groups": groups}, tmp_path / "state.pt")
    common = ["landscape", mlp, "--points", "7", "--out", str(tmp_path / "out")]
    for optimizer in ("SGD:lr=0.5", str(tmp_path / "state.pt")):
        _, found = run_json(
            capsys, *common, "--along", "step", "--optimizer", optimizer, "--to", str(tmp_path / "there.pt")
        )
        step, way = found["lines"]
        slope = -0.5 * float(problem.gradient().double().square().sum())
        assert step["name"] == "step of SGD"
        assert step["slope"] == pytest.approx(slope, rel=1e-5)
        assert way["name"].endswith("there.pt")
        at_end = dict(zip(np.round(way["places"], 9), way["losses"], strict=True))[1.0]
        assert at_end == pytest.approx(problem.at(weights).loss_value(), rel=1e-5)


def test_warnings_are_one_line_notes(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = MLP.replace(
        "def make_problem():", "def make_problem():\n    import warnings\n    warnings.warn('a [thing]')"
    )
    assert body != MLP
    (tmp_path / "noisy.py").write_text(body)
    assert main(["plan", "noisy.py:make_problem"]) == 0
    assert capsys.readouterr().err == "note: a [thing]\n"


def test_failed_check_exits_with_one(mlp: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesscope.curvature.self_check.check", lambda problem, half_within: FAILED)
    assert main(["check", mlp]) == 1
    assert "fc1 (Linear)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("blocks", "--classes", "2", "10"),
        ("blocks", "--case", "hidden-mse"),
        ("glm", "--ratio", "0.5", "--mean", "1.5"),
        ("linear",),
        ("relu", "--width", "6"),
        ("attention",),
    ],
)
def test_theory_gives_numbers_and_figures(arguments: tuple[str, ...], capsys: Capture, tmp_path: Path) -> None:
    assert main(["theory", "--out", str(tmp_path), "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["files"]) == 3
    assert all(Path(file).stat().st_size > 1000 for file in found["files"])


def test_theory_needs_no_torch(tmp_path: Path) -> None:
    code = f"import sys; from hesscope.cli import main; main(['theory', '--out', {str(tmp_path)!r}, 'linear']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_compare_two_models_and_two_results(mlp: str, capsys: Capture, tmp_path: Path) -> None:
    other = {"0.weight": 0.3 * np.ones((6, 5), np.float32)}
    np.savez(tmp_path / "w.npz", **other)
    code, found = run_json(capsys, "compare", mlp, f"{mlp}@w.npz", "--k", "4", "--out", "out")
    assert code == 0
    assert found["kolmogorov"] > 0.01
    assert 0 <= found["overlap"][0] <= 1
    assert found["blocks"]["layer"] > 0
    one = sample()
    vectors: Any = np.eye(100, 6)
    turned = replace(one.largest, vectors=vectors[:, [1, 0, 2, 3, 4, 5]])
    replace(one, largest=replace(one.largest, vectors=vectors)).save("a")
    replace(one, largest=turned).save("b")
    code, same = run_json(capsys, "compare", "a.json", "b.json", "--k", "4", "--out", "out")
    assert code == 0
    assert same["overlap"] == [0.0, 1.0, 1.0, 1.0]
    assert same["kolmogorov"] == 0


def test_report_from_a_folder(mlp: str, capsys: Capture, tmp_path: Path) -> None:
    main(["theory", "--out", "out", "linear"])
    main(["blocks", mlp, "--out", "out"])
    capsys.readouterr()
    assert main(["report", "out", "-o", "all.html"]) == 0
    assert "BlockNorms" in (tmp_path / "all.html").read_text()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mlp.py", "file.py:function"),
        ("none.py:make_problem", "must exist"),
        ("mlp.py:other", "It has: make_problem"),
        ("wrong.py:gives_int", "must return a hesscope.Problem"),
        ("wrong.py:breaks", "ZeroDivisionError: division by zero at line 7"),
        ("syntax.py:f", "SyntaxError"),
        ("mlp.py:make_problem@none.npz", "weights must be"),
    ],
)
def test_bad_sources_exit_with_two_and_one_line(
    mlp: str, source: str, message: str, capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text("def gives_int():\n    return 3\n\n\n\ndef breaks():\n    1 / 0\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    assert main(["check", source]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "mlp.py:make_problem", "--preset", "mlp-digits"),
        ("check", "--preset", "nothing"),
        ("analyze", "mlp.py:make_problem", "--k", "1"),
        ("reproduce", "no.such"),
        ("reproduce",),
        ("decouple", "mlp.py:make_problem", "--layer", "nothing"),
        ("show", "nothing.json"),
        ("no-such-command",),
        ("check", "mlp.py:make_problem", "--no-such-flag"),
    ],
)
def test_bad_input_exits_with_two(mlp: str, arguments: tuple[str, ...], capsys: Capture) -> None:
    assert main(list(arguments)) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_reproduce_lists_every_experiment(capsys: Capture) -> None:
    from hesscope.experiments import names

    code, found = run_json(capsys, "reproduce", "--list")
    assert code == 0
    assert [e["name"] for e in found["experiments"]] == list(names())
    assert all(e["title"] and e["source"] for e in found["experiments"])
    assert all({"quick", "default", "paper"} <= set(e) for e in found["experiments"])


def test_reproduce_shows_claims_and_counts_seeds(capsys: Capture, tmp_path: Path) -> None:
    code, found = run_json(capsys, "reproduce", "cracking.fig1", "--claims")
    assert code == 0
    assert {claim["basis"] for claim in found["claims"]} == {"paper"}
    code, found = run_json(capsys, "reproduce", "cracking.fig1", "--seeds", "2", "--out", str(tmp_path))
    assert code == 0
    assert found["seeds"] == [0, 1]
    assert found["table"]["verdict"] == ["holds (2 of 2)"] * 3
    assert (tmp_path / "cracking-fig1-seed1.json").exists()
    assert not list(tmp_path.glob(".*state"))


def test_settings_of_an_experiment_can_be_changed(capsys: Capture, tmp_path: Path) -> None:
    settings = ["--set", "width=7", "--out", str(tmp_path)]
    assert main(["reproduce", "cracking.fig1", *settings]) == 0
    saved = json.loads((tmp_path / "cracking-fig1.json").read_text())
    assert saved["result"]["fields"]["config"]["$dict"]["width"] == 7
    for wrong in ("wide=7", "width", "width=broad"):
        assert main(["reproduce", "cracking.fig1", "--set", wrong, "--out", str(tmp_path)]) == 2
    assert "width" in capsys.readouterr().err


def test_interrupted_analysis_goes_on_where_it_was(
    mlp: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by ctrl-C in the second stage, it says how to go on; the same command then keeps the first stage."""
    (tmp_path / "slow.py").write_text(MLP + SLOW)
    stopped = command(["analyze", "slow.py:slow_problem", "--out", "out", *LEAN], tmp_path, {"SLOW": "1"})
    while not (tmp_path / "out/state/smallest.json").exists():
        assert stopped.code is None
        time.sleep(0.02)
    stopped.send(signal.SIGINT)
    assert stopped.wait() == 130
    assert "run the same command again to go on" in stopped.err
    monkeypatch.setattr("hesscope.analysis.spectra.eigenpairs", None)  # the first stage must come from disk
    code, found = run_json(capsys, "analyze", "slow.py:slow_problem", "--out", "out", *LEAN)
    assert code == 0
    np.testing.assert_allclose(found["largest"], truth()[::-1][:5], rtol=1e-3)


SLOW = """
import os, time
import hesscope.analysis.spectra as analyze

def slow_problem():
    trace = analyze.trace
    if os.environ.get("SLOW"):
        analyze.trace = lambda *a, **k: (time.sleep(3600), trace(*a, **k))[1]
    return make_problem()
"""
