"""Bad inputs: every one is refused with what must hold, what was given and what to do; the user's files stay as they are."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bad_inputs import (
    algorithms,
    basics,
    bounds,
    closed_forms,
    command_results,
    commands,
    examples,
    factors,
    files,
    folders,
    landscapes,
    laws,
    losses,
    monitors,
    optimizers,
    problems,
    processes,
    structures,
)
from bad_inputs.row import Row, complaint

TABLE: dict[str, list[Row]] = {
    topic.__name__.rpartition(".")[2]: topic.ROWS
    for topic in (
        problems,
        examples,
        losses,
        algorithms,
        structures,
        monitors,
        landscapes,
        factors,
        optimizers,
        files,
        folders,
        bounds,
        processes,
        commands,
        command_results,
        laws,
        closed_forms,
        basics,
    )
}
ALL = {f"{topic}/{row.name}": row for topic, rows in TABLE.items() for row in rows}


@pytest.mark.parametrize("name", ALL)
def test_bad_input_is_refused_clearly(name: str, tmp_path: Path) -> None:
    assert complaint(ALL[name], tmp_path) == ""


def test_table_is_whole() -> None:
    assert len(ALL) == sum(len(rows) for rows in TABLE.values()) >= 800  # no two rows of one name
    assert sum(row.files is not None for row in ALL.values()) >= 150


def test_the_command_stays_a_function() -> None:
    from hesscope.cli import main

    assert main(["theory"]) == 2  # runs, and imports what it needs
    assert callable(importlib.import_module("hesscope.cli").main)
