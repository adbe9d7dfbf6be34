"""The facade: a problem and a config give one result that the report, the figures and the ten lines are drawn from."""

from .config import AnalyzeConfig as AnalyzeConfig
