"""Every experiment of the registry, at its quick size: its form, its claims, and its figures from a saved outcome."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from hesscope.experiments import figures_of, find, names, run_experiment
from hesscope.results.claims import Outcome


def test_every_paper_is_complete() -> None:
    found: dict[str, set[str]] = {}
    for name in names():
        paper, _, figure = name.partition(".")
        found.setdefault(paper, set()).add(figure)
    assert found == {
        "cracking": {
            *("fig1", "fig2", "fig3", "fig4", "fig7", "fig8", "fig9"),
            *("fig10_13", "fig14_16", "fig17_22", "fig26", "fig27"),
        },
        "dong2025": {
            *("fig1", "fig2_3", "fig4_7", "fig8", "fig9", "fig10", "fig11_12"),
            *("deep", "spectra", "trained_cnn", "trained_transformer"),
        },
        "edges": {"onset", "spikes", "training"},
        "liao2021": {"fig1", "fig2", "fig3", "fig4", "fig5"},
        "wu2022": {
            *("fig2", "fig3", "fig4", "fig5", "fig6", "fig11", "fig19", "fig21", "fig29", "fig31"),
            *("reductions", "table6", "table8", "table9", "table10", "theorem4"),
        },
    }


@pytest.mark.parametrize("name", names())
def test_form(name: str) -> None:
    """Two sizes of one frozen config whose fields are plain enough for a command line; a title and a source."""
    experiment = find(name)
    config = type(experiment.quick)
    assert experiment.name == name
    assert experiment.title
    assert experiment.source
    assert importlib.import_module(f"hesscope.experiments.{name}").__doc__
    assert is_dataclass(config)
    assert config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert type(experiment.paper) is config
    for field in fields(config):
        assert isinstance(getattr(experiment.quick, field.name), bool | int | float | str | tuple | None), field.name


@pytest.mark.parametrize("name", names())
def test_claims_hold_and_figures_are_drawn_from_a_saved_outcome(name: str, tmp_path: Path) -> None:
    experiment = find(name)
    outcome = run_experiment(experiment, experiment.quick, stand_in=True)
    assert outcome.name == name
    assert set(outcome.config) == {field.name for field in fields(experiment.quick)}
    assert len(outcome.claims) >= 2
    assert len({claim.statement for claim in outcome.claims}) == len(outcome.claims)
    assert all(claim.statement and claim.source and claim.expected and claim.got for claim in outcome.claims)
    broken = [f"{c.statement}: expected {c.expected}, got {c.got}" for c in outcome.claims if not c.holds]
    assert not broken, "\n".join(broken)

    loaded = Outcome.load(outcome.save(tmp_path / "outcome"))
    assert loaded.claims == outcome.claims
    drawn = figures_of(experiment, loaded)
    assert drawn
    for title, figure in drawn.items():
        assert figure.axes
        assert any(axis.get_title() or axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes), title
        figure.savefig(tmp_path / f"{title}.png", dpi=30)
        plt.close(figure)
