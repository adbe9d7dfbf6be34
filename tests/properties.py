"""Property tests draw the same examples on every machine; `make test-deep` draws new ones, and many more of them."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

DEEP = os.environ.get("HESSCOPE_TESTS") == "deep"
_MORE = 20

settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    phases=(Phase.explicit, Phase.generate),  # a red test ends at once; the deep run looks for a simpler example
    suppress_health_check=[HealthCheck.too_slow],  # a loaded machine is slow, and that is no failure
)
settings.register_profile(
    "deep", settings.get_profile("fixed"), derandomize=False, print_blob=True, phases=tuple(Phase)
)
settings.load_profile("deep" if DEEP else "fixed")
if not DEEP:
    # Constants in the source of all modules that happen to be loaded would be drawn, too: which ones are depends on what
    # a worker ran before.
    providers._get_local_constants = Constants


def examples(count: int) -> settings:
    """`@examples(20)`: twenty draws, twenty times as many in the deep run."""
    return settings(max_examples=count * _MORE if DEEP else count)
