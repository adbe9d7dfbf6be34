"""A stability result on a report's page: in words, as a picture, in tables; the sentence on rates is there."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import torch
from torch import nn, optim

import hesscope as hs
from hesscope.report import write_report


def test_the_page_says_what_the_result_says(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    problem = hs.Problem.of(model, "cross_entropy", (torch.randn(8, 3), torch.arange(8) % 2))
    found = hs.stability(problem, optim.SGD(model.parameters(), lr=0.1))
    text = unescape(write_report(found, tmp_path / "page.html").read_text())
    assert all(line in text for line in str(found).splitlines())
    assert "a ceiling, not advice" in text
    assert "Binding layers" in text
    assert "data:image/png" in text
