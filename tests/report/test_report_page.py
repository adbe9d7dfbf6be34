"""The page as text: complete, self-contained, small enough; the ten lines say what the numbers are."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hesscope.analysis.claims import claims_of
from hesscope.cli.commands.report import claim_line
from hesscope.errors import InputError
from hesscope.plots.analysis import analysis_figures
from hesscope.plots.export import FORMATS, save_figures
from hesscope.report import load_result, summary_lines, write_report
from hesscope.report.evidence import evidence_of
from hesscope.report.summary import what_next
from hesscope.results.claims import Claim, Outcome
from report.samples import FAILED, HOSTILE, sample

BLOCKS = ("blocks-layer", "blocks-neuron")


def test_page_holds_everything_and_stays_under_eight_megabytes(tmp_path: Path) -> None:
    page = write_report(sample(), tmp_path / "report.html")
    text = page.read_text()
    assert page.stat().st_size < 8_000_000
    for anchor in (
        "summary",
        "spectrum",
        "blocks",
        "decoupling",
        "landscape",
        "history",
        "claims",
        "evidence",
        "provenance",
    ):
        assert f'id="{anchor}-section"' in text
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.search(r"(src|href)=[\"'](https?:)?//", own)
    assert own.count("How to read it.") == 5


def test_no_hostile_name_reaches_the_page_as_markup(tmp_path: Path) -> None:
    text = write_report(sample(HOSTILE), tmp_path / "report.html").read_text()
    assert "<script>window.broken" not in text
    assert "<img src=x" not in text


def test_ten_lines_are_ten_and_say_the_numbers() -> None:
    lines = summary_lines(sample())
    assert len(lines) == 10
    assert all("\n" not in line for line in lines)
    assert "λ_max = 9 ± 0.0009" in lines[0]
    assert "a step of 0.222" in lines[0]
    assert "6 eigenvalues stand out" not in lines[3]
    assert "against 7 classes" in lines[3]
    assert "95.0%" in lines[4]
    assert "90.9% of ‖H‖²" in lines[5]  # (2² + 1²) / (2² + 1² + 2 · 0.5²)
    assert "fc1 80%" in lines[6]
    assert "λ_max ≈ 8.1" in lines[7]


def test_outliers_are_counted_at_the_widest_gap() -> None:
    one = sample()
    values = np.array([9.0, 8.0, 7.0, 1.0, 0.9, 0.8])
    assert replace(one, largest=replace(one.largest, values=values)).gap == pytest.approx((3, 7.0))


def test_negative_mass_counts_what_is_below_the_noise() -> None:
    one = sample()
    share = float(np.mean(one.density.nodes < -one.noise))
    assert one.negative_mass == pytest.approx(share)
    assert 0.3 < share < 0.6


def test_what_next_puts_a_failed_check_first() -> None:
    assert "self-check failed" in what_next(replace(sample(), verdict=FAILED))
    assert "negative part" in what_next(sample())


def test_a_failed_check_leaves_no_nan_in_the_lines() -> None:
    """It measures no noise floor (NaN), which must not become a bound of −nan or a mass of 100 %."""
    failed = replace(sample(), verdict=FAILED)
    assert failed.negative_mass == pytest.approx(sample().negative_mass)
    assert not [line for line in summary_lines(failed) if "nan" in line]


def test_sharpness_says_which_optimiser_it_speaks_of() -> None:
    said = summary_lines(sample())[0]
    assert "full-batch gradient descent (no momentum)" in said
    assert "`hesscope stability`" in said
    assert "a ceiling, not advice" in said


def test_every_number_says_how_it_was_found() -> None:
    one = sample()
    sampled = replace(one.trace, stderr=0.5, exact=False, method="xtrace", check="not proven")
    rows = {row.name: row for row in evidence_of(replace(one, trace=sampled, verdict=FAILED))}
    assert {"λ_max", "λ_min", "tr H", "tr G", "block norms of H by layer", "Kronecker error of fc1"} < set(rows)
    assert rows["tr H"].error == "± 0.5 (standard error)"
    assert rows["tr H"].method == "xtrace"
    assert rows["tr H"].check == "not proven"
    assert rows["tr G"].error == "exact"
    assert rows["λ_max"].error == "residual 9.0e-04"
    checked = replace(one.trace, check=str(one.verdict))
    assert {row.name: row.check for row in evidence_of(replace(one, trace=checked))}[
        "tr H"
    ] == "self-check\N{NO-BREAK SPACE}passed"


def test_a_trace_that_cannot_be_confirmed_is_left_open(tmp_path: Path) -> None:
    """248 ± 300 holds against anything; so does a sampled trace with an error of a tenth."""
    loose = replace(sample(), trace=replace(sample().trace, stderr=1.0, exact=False))
    claim = next(claim for claim in claims_of(loose) if "density" in claim.source)
    assert claim.holds is None
    assert claim_line(claim).startswith("open ")
    assert "cannot be decided" in write_report(replace(loose, claims=(claim,)), tmp_path / "r.html").read_text()
    assert Outcome("x", {}, {}, (claim,)).holds


def test_claims_compare_density_and_trace() -> None:
    holds = {claim.source: claim.holds for claim in claims_of(sample())}
    assert holds["tr H = n · mean of the density"]
    wrong = replace(sample(), trace=replace(sample().trace, value=50.0))
    assert not {claim.source: claim.holds for claim in claims_of(wrong)}["tr H = n · mean of the density"]


def test_analysis_survives_a_file(tmp_path: Path) -> None:
    one = sample()
    again = load_result(one.save(tmp_path / "analysis"))
    assert isinstance(again, type(one))
    assert summary_lines(again) == summary_lines(one)
    np.testing.assert_array_equal(again.blocks[1].norms, one.blocks[1].norms)


def test_figures_come_in_three_formats(tmp_path: Path) -> None:
    figures = analysis_figures(sample())
    assert set(figures) == {"spectrum", "spectrum-linear", "counts", *BLOCKS, "decoupling", "landscape-1", "history"}
    written = save_figures({"spectrum": figures["spectrum"]}, tmp_path)
    assert [path.suffix[1:] for path in written] == list(FORMATS)
    assert written[0].read_bytes()[:4] == b"\x89PNG"
    assert written[2].read_bytes()[:4] == b"%PDF"
    for axis in [axis for figure in figures.values() for axis in figure.axes]:
        assert axis.get_xlabel() or axis.get_ylabel()


def test_outcome_report_lists_claims_and_refuses_two_analyses(tmp_path: Path) -> None:
    claim = Claim("a claim <b>", "a paper", "1", "2", False)
    text = write_report({"x": Outcome("no.such", {}, {}, (claim,))}, tmp_path / "r.html").read_text()
    assert "a claim &lt;b&gt;" in text
    assert "does not hold" in text
    with pytest.raises(InputError, match="one analysis"):
        write_report({"a": sample(), "b": sample()}, tmp_path / "r.html")


def test_reports_and_figures_need_no_torch() -> None:
    code = "import sys, hesscope.report, hesscope.plots.analysis; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
