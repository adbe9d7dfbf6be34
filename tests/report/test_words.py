"""What is said makes sense, and says what to do next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import hesscope as hs
from hesscope.analysis.claims import claims_of
from hesscope.cli import main
from hesscope.report import summary_lines, write_report
from hesscope.report.glossary import GLOSSARY
from hesscope.results.layers import LayerTable
from report.samples import sample


def test_every_line_says_what_to_do_next() -> None:
    lines = summary_lines(sample())
    assert len(lines) == 10
    assert all("→" in line for line in lines[:9])
    assert lines[9].startswith("Next:")


def test_the_largest_layer_is_named() -> None:
    n = np.ones(2)
    table = LayerTable(
        ("fc1", "out"), 9 * n, np.array([1.0, 3.0]), 0 * n, n, 0 * n, n, 0 * n, n, 0 * n, n, 0 * n, ("", ""), 0
    )
    line = summary_lines(replace(sample(), layer_table=table))[1]
    assert "most of it is in out (75%)" in line


def test_no_layer_holds_most_of_a_trace_below_zero() -> None:
    n = np.ones(2)
    below = np.array([-0.5, -2.0])
    table = LayerTable(("fc1", "out"), 9 * n, below, 0 * n, n, 0 * n, n, 0 * n, n, 0 * n, n, 0 * n, ("", ""), 0)
    line = summary_lines(replace(sample(), layer_table=table))[1]
    assert "most of it is in" not in line
    assert "no layer holds most of it" in line


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((9.0, 8.0, 7.2, 6.6), "no group stands out among the top 4 (the widest gap is a factor of 1.1)"),
        ((9.0, 8.0, 0.8, 0.7), "2 eigenvalues stand out (the next is 10 times smaller)"),
        ((9.0, 8.0, 0.001, 0.001), "2 eigenvalues stand out (all others are less than a thousandth"),
    ],
)
def test_outliers_are_those_behind_a_gap(values: tuple[float, ...], said: str) -> None:
    a = sample()
    found = np.array(values)
    pairs = replace(a.largest, values=found, residuals=1e-6 * found, converged=np.ones(4, bool))
    parts = replace(a.gauss_newton_parts, value=found) if a.gauss_newton_parts else None
    lines = summary_lines(replace(a, largest=pairs, gauss_newton_parts=parts))
    assert said in lines[3]
    assert not any("nan" in line or "inf" in line for line in lines)


def test_a_claim_about_more_eigenvalues_than_were_found_is_not_decided() -> None:
    a = sample()
    found = np.array([9.0, 8.0, 0.8, 0.7])
    pairs = replace(a.largest, values=found, residuals=1e-6 * found, converged=np.ones(4, bool))
    few, enough, gone = (
        claims_of(replace(a, largest=pairs, gauss_newton_parts=None, classes=classes)) for classes in (5, 4, 3)
    )
    tiny = replace(pairs, values=np.array([9.0, 8.0, 0.8, 0.001]))
    below = claims_of(replace(a, largest=tiny, gauss_newton_parts=None, classes=5))
    verdicts = [next(c for c in claims if c.statement.startswith("As many")) for claims in (few, enough, gone, below)]
    assert [claim.holds for claim in verdicts] == [None, False, True, False]
    assert verdicts[0].got == "only the top 4 are known"


def test_the_tile_says_what_the_line_says(tmp_path: Path) -> None:
    a = sample()
    found = np.array([9.0, 8.0, 7.2, 6.6])
    pairs = replace(a.largest, values=found, residuals=1e-6 * found, converged=np.ones(4, bool))
    page = write_report(replace(a, largest=pairs, gauss_newton_parts=None), tmp_path / "report.html").read_text()
    assert "no group stands out" in page
    tile = page[page.index(">Outliers<") :][:200]
    assert ">none<" in tile


def test_the_report_explains_its_words(tmp_path: Path) -> None:
    page = write_report(sample(), tmp_path / "report.html").read_text()
    assert '<a href="#glossary-section">' in page
    assert all(word in page for word in ("stable rank", "Gauss-Newton G"))
    assert len(GLOSSARY) > 15


def test_a_positive_semi_definite_matrix_has_nothing_below_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(
        "import torch, hesscope as hs\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3))\n"
        "    return hs.Problem.of(model, 'cross_entropy', (torch.randn(40, 20), torch.arange(40) % 3))\n"
    )
    place = f"{tmp_path}/model.py:make"
    assert main(["spectrum", place, "--matrix", "gauss-newton", "--k", "3", "--out", str(tmp_path / "g")]) == 0
    assert "none below zero" in capsys.readouterr().out
    assert main(["spectrum", place, "--k", "3", "--out", str(tmp_path / "h")]) == 0
    assert "% below −" in capsys.readouterr().out


def test_the_doctor_says_what_is_missing_for_what(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HESSCOPE_DATA", "/nowhere/at/all")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"hesscope {hs.__version__}" in said
    assert torch.__version__ in said
    assert "HESSCOPE_DATA is /nowhere/at/all" in said
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["torch"] == torch.__version__
    for name, version in found["packages"].items():
        if version is None:
            assert any(line.startswith(name) and "pip install hesscope[" in line for line in said.splitlines())


@pytest.mark.parametrize(("lowest", "said"), [(-0.001, "G can stand for H here"), (-4.0, "at the top only")])
def test_gauss_newton_stands_for_a_matrix_without_negative_curvature_only(lowest: float, said: str) -> None:
    """tr G = tr H in both, as of networks that are affine in each parameter."""
    found = sample()
    density = replace(found.density, nodes=np.array([lowest, 1.0, 9.0]), weights=np.array([0.2, 0.5, 0.3]))
    line = summary_lines(replace(found, density=density, gauss_newton_trace=found.trace))[4]
    assert line.startswith("Gauss-Newton:")
    assert said in line


def test_what_is_to_be_typed_is_code_on_the_page(tmp_path: Path) -> None:
    page = write_report(sample(), tmp_path / "report.html").read_text()
    lines = page.split('<dl class="lines">')[1].split("</dl>")[0]
    assert "<code>hesscope" in lines
    assert "`" not in lines
