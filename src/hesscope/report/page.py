"""One self-contained HTML file: scripts, styles, figures and data inline, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path

from .._version import __version__
from ..errors import FileError, refuse
from ..files import as_path, make_folder, replace_own
from ..result import Result
from ..results.analysis import Analysis
from .sections import Part, parts_of


def write_report(
    results: Result | Mapping[str, Result], path: str | os.PathLike[str], title: str | None = None
) -> Path:
    """Write results (one, or several by name) as one HTML page that opens from disk."""
    named = {"result": results} if isinstance(results, Result) else dict(results)
    for name, result in named.items():
        if not isinstance(result, Result):
            refuse(
                "a report is written of results",
                f"{type(result).__name__} as {name!r}",
                "Pass what `analyze` returned.",
            )
    if not named:
        refuse("a report needs at least one result", "none", "Pass what `analyze` returned.")
    groups = [(name, parts_of(name, result)) for name, result in named.items()]
    analyses = [result for result in named.values() if isinstance(result, Analysis)]
    if len(analyses) > 1:
        refuse("a report holds one analysis", f"{len(analyses)}", "Write one report each, or use `hesscope compare`.")
    heading = title or (analyses[0].title if analyses else "Hesscope report")
    under = _under(analyses[0]) if analyses else f"{len(named)} result{'s' if len(named) > 1 else ''}"
    parts = [part for _, found in groups for part in found]
    target = as_path(path, "the page")
    if target.is_dir():
        refuse("a report is a file", f"the folder {str(target)!r}", "Name a page in it: report.html.", FileError)
    page = _page(heading, under, parts)
    make_folder(target.parent)
    replace_own(target, lambda f: f.write(page.encode()))
    return target


def _under(a: Analysis) -> str:
    return f"{a.size:,} parameters in {len(a.layers)} layers, loss {a.loss:.4g}, |∇L| = {a.gradient_norm:.2g}"


def _page(heading: str, under: str, parts: list[Part]) -> str:
    interactive = any('class="figure"' in part.html for part in parts)
    scripts = [_plotly()] if interactive else ["const Plotly = {};"]
    scripts.append(_asset("page.js"))
    links = "".join(f'<li><a href="#{part.anchor}">{escape(part.title)}</a></li>' for part in parts)
    # Only these scripts run, whatever else may stand in the page; and nothing may be fetched.
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    code = "\n".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="hesscope {__version__}">
<link rel="icon" href="data:,">
<title>{escape(heading)}: Hessian report</title>
<style>{_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><div><h1>{escape(heading)}</h1><p class="under">{escape(under)}</p></div>
<button type="button" id="theme">Dark</button></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="content">
{"".join(part.html for part in parts)}
</main>
<footer>Written by hesscope {__version__}. This page holds everything it shows and fetches nothing.</footer>
{code}
</body>
</html>
"""


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
