"""One package per paper, one module per figure or table; `_`-modules are shared parts."""

from ..results.claims import Claim as Claim
from ..results.claims import Outcome as Outcome
from ..results.seeds import SeedTable as SeedTable
from .recipe import Experiment as Experiment
from .registry import find as find
from .registry import names as names
from .running import outcome_figures as outcome_figures
from .running import run_experiment as run_experiment
from .running import run_seeds as run_seeds
