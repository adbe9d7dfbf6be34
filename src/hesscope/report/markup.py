"""HTML from parts: every text is escaped here, so that no name from a model or a file becomes markup."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..plots.picture import Picture
from .interactive import specification


def data_script(name: str, body: Any) -> str:
    """JSON inside the page that no text can break out of."""
    text = json.dumps(body, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(name)}-data">{text}</script>'


def figure(found: Picture, read: str, after: str = "") -> str:
    """Buttons for the views, the figure, how to read it."""
    buttons = "".join(
        f'<button type="button" data-figure="{found.name}" aria-pressed="false">{escape(view.label)}</button>'
        for view in found.panels
    )
    keys = "arrow keys pan, plus and minus zoom, 0 shows all"
    return (
        f'<section id="{found.name}-section"><h2>{escape(found.title)}</h2>'
        f'<div class="controls" role="group" aria-label="Views of {escape(found.title)}">{buttons}</div>'
        f'<div class="figure" id="{found.name}" tabindex="0" role="application" '
        f'aria-label="{escape(found.title)}, interactive figure: {keys}"></div>'
        f"{data_script(found.name, specification(found))}"
        f'<p class="read"><strong>How to read it.</strong> {escape(read)}</p>{after}</section>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table; cells that are already markup come as `Markup`."""
    cells = "".join(
        "<tr>"
        + "".join(f"<td>{cell if isinstance(cell, Markup) else escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    about = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll" tabindex="0"><table>{about}<thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table></div>'


class Markup(str):
    """Text that is HTML already."""


def badge(holds: bool | None) -> Markup:
    """Said in words, not by colour alone."""
    kind, words = {True: ("holds", "holds"), False: ("fails", "does not hold"), None: ("open", "cannot be decided")}[
        holds
    ]
    return Markup(f'<span class="badge {kind}">{words}</span>')


def claims_table(claims: Iterable[Any]) -> str:
    """Claim, source, expected, got, holds."""
    rows = [(c.statement, c.source, c.expected, c.got, badge(c.holds)) for c in claims]
    return table(("Claim", "Source", "Expected", "Got", "Holds"), rows)


def pairs_table(pairs: Iterable[tuple[str, Any]]) -> str:
    """Names and values."""
    return table(("What", "Value"), [(str(name), str(value)) for name, value in pairs])


def disclosure(summary: str, body: str) -> str:
    """Something to open."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def tile(name: str, value: str, more: str) -> str:
    """One number in large type."""
    return (
        f'<div class="tile"><div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
        f'<div class="more">{escape(more)}</div></div>'
    )
