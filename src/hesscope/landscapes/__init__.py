"""The loss along directions, beside its quadratic model."""

from .optimiser_step import OptimizerStep as OptimizerStep
from .survey import landscape as landscape
