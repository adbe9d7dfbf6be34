"""Blocks of vectors: one form between algorithms and engines."""

from __future__ import annotations

import pytest
import torch

from hesscope.operators import Layout
from hesscope.operators.columns import by_columns, joined_columns
from hesscope.rng import Rng


@pytest.mark.parametrize("n", [1, 3, 4096, 9001])
@pytest.mark.parametrize("k", [1, 5])
def test_a_block_from_outside_keeps_its_values_and_gets_columns_in_one_piece(n: int, k: int) -> None:
    whole = torch.randn(n, 2 * k, generator=torch.Generator().manual_seed(0))
    for block in (whole[:, :k], whole[:, ::2], whole[:, :1].expand(n, k)):
        found = by_columns(block)
        assert torch.equal(found, block)
        assert n == 1 or found.stride(0) == 1


def test_a_block_in_the_right_form_is_not_copied() -> None:
    block = torch.randn(4, 7).T
    assert by_columns(block).data_ptr() == block.data_ptr()
    assert joined_columns([block, block[:, :2]]).stride(0) == 1


def test_what_algorithms_draw_needs_no_copy_in_an_engine() -> None:
    drawn = Layout(9).draw(Rng(0), 3, "normal", torch.float64, torch.device("cpu"))
    assert drawn.stride(0) == 1
