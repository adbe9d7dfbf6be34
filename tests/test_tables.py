"""Results as tables, figures and short lines."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import hesscope as hs
from hesscope.errors import FileError, HesscopeError
from hesscope.plots.of_results import figure_of_result
from hesscope.result import Result
from hesscope.tables import Tabular
from report.samples import sample


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(14, 15), torch.nn.ReLU(), torch.nn.Linear(15, 3))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(40, 14), torch.randint(0, 3, (40,))))
    part = hs.decouple(problem, "0")
    analysis = sample("50%_off & <b>")
    return {
        "eigenpairs": hs.eigenpairs(problem, 3),
        "density": hs.spectral_density(problem, 4, steps=12),
        "trace": hs.trace(problem),
        "diagonal": hs.diagonal(problem),
        "norms": hs.block_norms(problem, "layer"),
        "block spectra": hs.block_spectra(problem, "layer"),
        "heat map": hs.heat_map(problem, 20),
        "circulant": hs.circulant_score(problem),
        "output norms": hs.output_block_norms(problem),
        "layers": hs.per_layer(problem),
        "decoupling": part,
        "comparison": part.compare(3),
        "errors": part.errors(),
        "analysis": analysis,
        "history": analysis.history,
        "verdict": analysis.verdict,
        "claim": analysis.claims[0],
        "solution": hs.solve(problem, torch.ones(problem.space.size), damping=1.0),
        "plan": hs.plan(problem),
        "prediction": analysis.prediction,
        "clusters": hs.logit_gradients(problem, "0"),
    }


KINDS = ("eigenpairs", "density", "trace", "diagonal", "norms", "block spectra", "heat map", "circulant", "output norms",
         "layers", "decoupling", "comparison", "errors", "analysis", "history", "verdict", "claim", "solution", "plan",
         "prediction", "clusters")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_shows_itself(results: dict[str, Any], kind: str) -> None:
    found = results[kind]
    columns = found.table()
    assert len({len(values) for values in columns.values()}) == 1
    rows = list(csv.reader(io.StringIO(found.to_csv())))
    assert rows[0] == list(columns)
    assert len(rows) == 1 + len(next(iter(columns.values())))
    latex = found.to_latex("All of it, 100%")
    assert latex.count(r"\\") == len(rows)
    assert r"100\%" in latex
    assert isinstance(found.to_dict(), dict)
    assert isinstance(found.plot(), Figure)
    assert len(repr(found)) <= 260
    html = found._repr_html_()
    assert "<table>" in html
    assert "<b>" not in html  # names are escaped


@pytest.mark.parametrize("kind", ["density", "norms", "decoupling", "analysis", "layers", "eigenpairs", "history"])
def test_pictures_in_notebooks(results: dict[str, Any], kind: str) -> None:
    assert "data:image/png;base64," in results[kind]._repr_html_()


def test_tables_hold_the_numbers(results: dict[str, Any]) -> None:
    pairs, norms = results["eigenpairs"], results["norms"]
    rows = list(csv.DictReader(io.StringIO(pairs.to_csv())))
    assert [float(row["eigenvalue"]) for row in rows] == pytest.approx(pairs.values.tolist())
    assert pytest.approx(norms.norms) == np.array([norms.table()[name] for name in norms.names]).T
    assert results["trace"].to_dict()["value"] == float(results["trace"])
    assert results["decoupling"].to_dict()["layer"] == "0"


def test_a_table_replaces_only_tables_of_its_own(results: dict[str, Any], tmp_path: Path) -> None:
    place = tmp_path / "new" / "table.csv"
    results["trace"].to_csv(place)
    results["trace"].to_csv(place)
    assert place.read_text() == results["trace"].to_csv()
    with pytest.raises(FileError, match="only replaces files"):
        results["norms"].to_csv(place)
    place.write_text("my notes\n")
    with pytest.raises(FileError, match="only replaces files"):
        results["trace"].to_csv(place)
    assert place.read_text() == "my notes\n"


def test_all_kinds_of_results_derive_from_what_shows_itself() -> None:
    assert issubclass(Result, Tabular)
    with pytest.raises(HesscopeError, match="a figure is drawn of a result"):
        figure_of_result("text")


def test_long_names_and_arrays_do_not_fill_screens() -> None:
    many = hs.Eigenpairs(
        np.zeros(900), torch.zeros(5, 900), np.zeros(900), np.zeros(900, bool), 3, 0.1, "checked " * 80
    )
    assert len(repr(many)) <= 260
    assert many._repr_html_().count("<tr>") == 21
    assert "880 more rows" in many._repr_html_()


def test_dataframes_name_the_extra_where_pandas_is_missing(results: dict[str, Any]) -> None:
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(HesscopeError, match=r"hesscope\[notebook\]"):
            results["trace"].to_dataframe()
        return
    frame = results["eigenpairs"].to_dataframe()
    assert list(frame["eigenvalue"]) == results["eigenpairs"].values.tolist()


def test_densities_are_drawn_no_finer_than_they_are_known() -> None:
    """Quadrature nodes of a flat spectrum give a flat curve, and the truth lies in the band."""
    from hesscope.plots.spectrum_curves import density

    truth = np.linspace(0.0, 1.0, 2000)
    found = hs.spectral_density(hs.Dense(torch.diag(torch.as_tensor(truth))), 6, steps=24, tol=0, rng=1)
    curve = density(found, -0.2, 1.2)
    inside = (curve.x > 0.15) & (curve.x < 0.85)
    assert curve.stderr is not None
    assert np.ptp(curve.y[inside]) < 0.25  # sharp nodes give 0 between them
    assert (np.abs(curve.y[inside] - 1) <= 4 * curve.stderr[inside] + 0.05).all()
    sharp = found.density(curve.x[inside], 0.006 * 1.4)
    assert np.ptp(sharp) > 0.8
