"""The loss along directions, beside its quadratic model."""

from .survey import landscape as landscape
