"""Two workers share two cores: one thread each, and the tests' folder on the path for shared cases."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

import properties as properties  # the profile of hypothesis, before any test is read


# Two workers share the tests as load has it. What is drawn from torch's global generator must not depend on which ran before,
# nor on which test of a file is the first to need a fixture.
def pytest_collectstart() -> None:
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    torch.manual_seed(1)
