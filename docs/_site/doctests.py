"""Fence the examples of docstrings, which Markdown would otherwise read as text."""

from __future__ import annotations

import re
from typing import Any

import griffe


class FenceDoctests(griffe.Extension):
    """`>>>` paragraphs become code blocks."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = re.sub(
                r"^>>> .*?(?=\n\s*\n|\Z)",
                lambda m: f"```pycon\n{m.group(0)}\n```",
                obj.docstring.value,
                flags=re.M | re.S,
            )
