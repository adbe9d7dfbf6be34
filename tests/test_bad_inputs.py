"""Bad inputs: every one is refused with what must hold, what was given and what to do; the user's files stay as they are."""

from __future__ import annotations

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
    laws,
    losses,
    problems,
    processes,
    structures,
)
from bad_inputs.row import Row, complaint
from bad_inputs.unmet import UNMET

TABLE: dict[str, list[Row]] = {
    topic.__name__.rpartition(".")[2]: topic.ROWS
    for topic in (
        problems,
        examples,
        losses,
        algorithms,
        structures,
        factors,
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
EVERY = {f"{topic}/{row.name}": row for topic, rows in TABLE.items() for row in rows}
ALL = {name: row for name, row in EVERY.items() if name not in UNMET}


@pytest.mark.parametrize("name", ALL)
def test_bad_input_is_refused_clearly(name: str, tmp_path: Path) -> None:
    assert complaint(ALL[name], tmp_path) == ""


def test_table_is_whole() -> None:
    assert len(EVERY) == sum(len(rows) for rows in TABLE.values()) >= 800  # no two rows of one name
    assert sum(row.files is not None for row in EVERY.values()) >= 150
