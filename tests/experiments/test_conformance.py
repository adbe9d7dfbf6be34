"""Every experiment of the registry, at its quick size: its form, its verdicts, and its figures from a saved outcome."""

from __future__ import annotations

import importlib
import json
import re
import runpy
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import matplotlib.pyplot as plt
import pytest

from hesscope.experiments import SeedTable, find, names, outcome_figures, run_experiment, run_seeds
from hesscope.experiments.declared import Basis, Declared, PrintedEstimate, at_most, judge, standard_errors
from hesscope.experiments.recipe import Findings
from hesscope.experiments.times import SECONDS, in_words
from hesscope.results.claims import Outcome
from hesscope.tables import plain

SITE = Path(__file__).parents[2] / "docs" / "_site"
OUTCOMES = SITE.parent / "outcomes"


def test_every_paper_is_complete() -> None:
    found: dict[str, set[str]] = {}
    for name in names():
        paper, _, figure = name.partition(".")
        found.setdefault(paper, set()).add(figure)
    assert found == {
        "cracking": {
            *("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9"),
            *("fig10_13", "fig14_16", "fig17_22", "fig26", "fig27"),
        },
        "dong2025": {
            *("fig1", "fig2_3", "fig4_7", "fig8", "fig9", "fig10", "fig11_12"),
            *(
                "deep",
                "heuristics",
                "hidden_spectra",
                "language_model",
                "referee",
                "spectra",
                "stripes",
                "theorem2",
                "trained_cnn",
                "trained_transformer",
            ),
        },
        "edges": {"onset", "spikes", "training"},
        "liao2021": {"fig1", "fig2", "fig3", "fig4", "fig5", "least_squares", "trimming"},
        "wu2022": {
            *(
                "fig2",
                "fig3",
                "fig4",
                "fig5",
                "fig6",
                "fig7",
                "fig11",
                "fig16",
                "fig19",
                "fig21",
                "fig23",
                "fig29",
                "fig31",
            ),
            *(
                "bound_budgets",
                "bound_parts",
                "lemmas",
                "reductions",
                "table6",
                "table8",
                "table9",
                "table10",
                "theorem4",
                "trained_resnets",
            ),
        },
    }


@pytest.mark.parametrize("name", names())
def test_form(name: str) -> None:
    """Three sizes of one frozen config whose fields are plain enough for a command line; a title and a source."""
    experiment = find(name)
    config = type(experiment.quick)
    assert experiment.name == name
    assert experiment.title
    assert experiment.source
    assert importlib.import_module(f"hesscope.experiments.{name}").__doc__
    assert is_dataclass(config)
    assert config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert type(experiment.default) is config
    assert type(experiment.paper) is config
    assert isinstance(experiment.quick.seed, int)
    for field in fields(config):
        assert isinstance(getattr(experiment.quick, field.name), bool | int | float | str | tuple | None), field.name


@pytest.mark.parametrize("name", names())
def test_every_claim_is_declared_with_a_source_and_a_threshold_that_can_fail(name: str) -> None:
    claims = find(name).claims
    assert len(claims) >= 2
    assert len({one.id for one in claims}) == len(claims)
    assert len({one.says for one in claims}) == len(claims)
    for one in claims:
        assert one.id
        assert one.where
        assert one.says
        assert one.because
        assert one.basis in get_args(Basis)
        low, high = one.limit if isinstance(one.limit, tuple) else (one.limit, one.limit)
        outside = [low - 1 - abs(low), high + 1 + abs(high)]
        assert any(not one.agrees(value) for value in outside), one.id
        assert one.judged(None).holds is None


@pytest.mark.parametrize("name", names())
def test_a_quick_run_ends_in_verdicts_and_figures_are_drawn_from_a_saved_outcome(name: str, tmp_path: Path) -> None:
    """A claim that does not hold is a finding, not a failure: its verdict at this seed is the one in docs/outcomes."""
    experiment = find(name)
    outcome = run_experiment(experiment, experiment.quick, stand_in=True)
    assert outcome.name == name
    assert set(outcome.config) == {field.name for field in fields(experiment.quick)}
    assert [claim.id for claim in outcome.claims] == [one.id for one in experiment.claims]
    assert all(claim.statement and claim.source and claim.expected and claim.got for claim in outcome.claims)
    assert any(claim.holds is not None for claim in outcome.claims)
    _as_kept(name, outcome)

    loaded = Outcome.load(outcome.save(tmp_path / "outcome"))
    assert loaded.claims == outcome.claims
    drawn = outcome_figures(loaded)
    assert drawn
    for title, figure in drawn.items():
        assert figure.axes
        assert any(axis.get_title() or axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes), title
        figure.savefig(tmp_path / f"{title}.png", dpi=30)
        plt.close(figure)


def _as_kept(name: str, outcome: Outcome) -> None:
    file = OUTCOMES / f"{name}.quick.json"
    if not file.exists():
        return
    found = json.loads(file.read_text())
    if found["stand_ins"] != list(outcome.stand_ins):
        return  # with other data
    kept = {row["id"]: row["holds"][0] for row in found["claims"]}
    declared = {one.id: one for one in find(name).claims}
    changed = [
        f"{claim.id}: {claim.got}, expected {claim.expected}, kept as {kept[claim.id]}"
        for claim in outcome.claims
        if claim.id in kept and claim.holds != kept[claim.id] and not _is_close(claim.value, declared[claim.id])
    ]
    assert not changed, "\n".join(changed)


def _is_close(value: float | None, declared: Declared) -> bool:
    """Within a twentieth of a threshold, or one of what is counted, another machine's rounding may decide otherwise."""
    limits = declared.limit if isinstance(declared.limit, tuple) else (declared.limit,)
    one_of = 1.001 / declared.counted if declared.counted else 0.0
    return value is not None and any(abs(value - at) <= max(0.05 * max(abs(at), abs(value)), one_of) for at in limits)


def test_the_page_of_claims_is_what_the_code_declares() -> None:
    script = runpy.run_path(str(SITE / "claims.py"))
    assert script["PAGE"].read_text() == script["page"](), "run `make claims`"


def test_the_gallery_is_what_the_outcomes_say_and_shows_every_picture() -> None:
    script = runpy.run_path(str(SITE / "gallery.py"))
    assert script["PAGE"].read_text() == script["page"](), "run `make claims`"
    shown = set(re.findall(r"\(gallery/([^)]+)\)", script["PAGE"].read_text()))
    assert shown == {file.name for file in script["OUT"].glob("*.png")}


def test_the_page_of_coverage_is_current_and_names_what_exists() -> None:
    script = runpy.run_path(str(SITE / "coverage.py"))
    assert script["PAGE"].read_text() == script["page"](), "run `make claims`"
    items = json.loads((SITE / "coverage.json").read_text())
    assert len({item["id"] for item in items}) == len(items) == 200
    for item in items:
        assert item["status"] in ("full", "partly", "absent")
        assert bool(item["by"]) == (item["status"] != "absent"), item["id"]
        for by in item["by"]:
            assert _exists(by), f"{item['id']}: {by}"


def _exists(what: str) -> bool:
    if what.startswith("tests/"):
        return (SITE.parents[1] / what).exists()
    if what.startswith("hesscope."):
        module, _, name = what.rpartition(".")
        return hasattr(importlib.import_module(module), name)
    return what in names()


def test_how_long_it_takes_is_known_of_every_experiment() -> None:
    assert set(SECONDS) == set(names())
    assert all(quick <= default <= paper for quick, default, paper in SECONDS.values())
    assert [in_words(s) for s in (0.4, 40, 720, 20_000, 800_000)] == [
        "1 seconds",
        "40 seconds",
        "12 minutes",
        "6 hours",
        "9 days",
    ]


def test_measuring_what_was_not_declared_is_a_mistake() -> None:
    declared = (at_most("small", "somewhere", "a number is small", 1.0, "its words"),)
    with pytest.raises(AssertionError, match="never declared: other"):
        judge(declared, {"other": 0.0})
    (claim,) = judge(declared, {"small": "too few examples"})
    assert (claim.holds, claim.got, claim.verdict) == (None, "too few examples", "not decidable at this size")
    (claim,) = judge(declared, {"small": (2.0, "two")})
    assert (claim.holds, claim.got, claim.verdict) == (False, "two", "does not hold")
    assert judge(declared, {"small": float("nan")})[0].holds is False


def test_an_estimate_stands_beside_the_printed_number_in_the_same_unit() -> None:
    """The verdict is that of the standard errors, the number and the ratio are those of what the paper prints."""
    declared = (standard_errors("exponent", "Theorem 1", "it falls as 1/C", printed=-1.0),)
    (claim,) = judge(declared, {"exponent": PrintedEstimate(-0.9, 1.5, "-0.9 ± 0.07")})
    assert (claim.holds, claim.value, claim.ratio, claim.expected) == (True, -0.9, 0.9, "-1 to 4 standard errors")
    assert judge(declared, {"exponent": PrintedEstimate(-0.5, 7.0, "-0.5 ± 0.07")})[0].holds is False
    with pytest.raises(AssertionError, match="estimate of the printed number"):
        judge(declared, {"exponent": 1.5})


@pytest.mark.parametrize("file", sorted(OUTCOMES.glob("*.json")), ids=lambda file: file.stem)
def test_what_is_kept_is_what_is_declared(file: Path) -> None:
    """Claims as the code has them, and every verdict that of its number and threshold; a printed number in ours' unit."""
    kept = json.loads(file.read_text())
    declared = {one.id: one for one in find(kept["name"]).claims}
    for row in kept["claims"]:
        one = declared[row["id"]]
        assert (row["printed"], row["expected"]) == (one.printed, one.expected), row["id"]
        said = (one.says, one.where, f"{one.basis}: {one.because}")
        assert (row["statement"], row["source"], row["threshold"]) == said, row["id"]
        for value, holds in zip(row["values"], row["holds"], strict=True):
            assert (value is None) == (holds is None), row["id"]
            if value is not None and one.rule != "±":
                assert one.agrees(value) == holds, row["id"]
        if row["ratio"] is not None:
            assert row["ratio"] == pytest.approx(row["mean"] / one.printed), row["id"]


@pytest.mark.parametrize("file", sorted(OUTCOMES.glob("*.json")), ids=lambda file: file.stem)
def test_what_is_kept_was_run_with_the_settings_of_its_size(file: Path) -> None:
    """A size whose config was changed since has no outcome; a field that was added since had what is now its default."""
    kept = json.loads(file.read_text())
    config = find(kept["name"]).sizes[kept["size"]]
    ran = {field.name: plain(field.default) for field in fields(config)} | kept["settings"]
    assert ran == plain(asdict(config))


def test_claims_over_seeds_say_at_how_many_they_hold() -> None:
    declared = replace(at_most("small", "Table 1", "a number is small", 1.0, "its words"), printed=0.5)
    outcomes = [
        Outcome("x", {"seed": seed}, {}, (declared.judged(value),)) for seed, value in enumerate((0.5, 0.75, 1.75))
    ]
    table = SeedTable.of(outcomes)
    (row,) = table.claims
    assert row.verdict == "holds at 2 of 3 seeds"
    assert (row.mean, row.ratio, row.ours) == (1.0, 2.0, "1 (0.5 to 1.75)")
    assert table.holds
    assert SeedTable.of(outcomes[2:]).claims[0].verdict == "does not hold"
    assert not SeedTable.of(outcomes[2:]).holds


def test_seeds_that_decide_nothing_say_why() -> None:
    declared = at_most("small", "Table 1", "a number is small", 1.0, "its words")
    measured = (0.5, "networks are not trained")
    outcomes = [Outcome("x", {"seed": seed}, {}, (declared.judged(one),)) for seed, one in enumerate(measured)]
    assert SeedTable.of(outcomes[1:]).claims[0].ours == "networks are not trained"
    assert SeedTable.of(outcomes).claims[0].ours == "0.5 [1 of 2 undecided: networks are not trained]"


def test_a_run_that_was_stopped_goes_on_at_the_seed_where_it_was(tmp_path: Path) -> None:
    experiment = find("cracking.fig1")
    calls: list[int] = []

    def run(config: Any) -> Findings:
        calls.append(config.seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return experiment.run(config)

    stopped = replace(experiment, run=run)
    with pytest.raises(KeyboardInterrupt):
        run_seeds(stopped, experiment.quick, 2, state=tmp_path / "state")
    found = run_seeds(stopped, experiment.quick, 2, state=tmp_path / "state")
    assert calls == [0, 1, 1]
    assert [outcome.config["seed"] for outcome in found] == [0, 1]
    assert not (tmp_path / "state").exists()
