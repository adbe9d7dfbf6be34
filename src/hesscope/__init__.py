"""Hesscope."""
