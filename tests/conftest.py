"""Two workers share two cores: one thread each, and the tests' folder on the path for shared cases."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import properties as properties  # the profile of hypothesis, before any test is read
