"""One package per paper, one module per figure or table; `_`-modules are shared parts."""

from .base import Claim as Claim
from .base import Experiment as Experiment
from .base import Outcome as Outcome
from .registry import find as find
from .registry import names as names
