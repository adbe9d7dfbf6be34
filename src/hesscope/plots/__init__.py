"""Figures from results, by matplotlib; importing this never imports torch."""

from .style import new_figure as new_figure
