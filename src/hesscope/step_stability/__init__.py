"""Is the step stable: curvature as the optimiser sees it, and the edge of each optimiser."""

from .binding_blocks import binding as binding
from .optimizer_state import OptimizerState as OptimizerState
from .optimizer_state import read_optimizer as read_optimizer
from .preconditioned import Preconditioned as Preconditioned
from .reading import read_edge as read_edge
from .run import stability as stability
