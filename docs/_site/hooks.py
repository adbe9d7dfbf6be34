"""Pages that follow from the files: lists of pages, the reference."""

from __future__ import annotations

import ast
import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

SOURCE = Path(__file__).parents[2] / "src" / "hesscope"
REFERENCE = (
    "curvature", "landscapes", "layers", "linalg", "operators", "structure", "kron", "step_stability", "pacbayes",
    "closed_form", "rmt", "report", "zoo",
)  # fmt: skip
HOWTO = (
    "your-model", "losses", "huggingface", "torchrun", "checkpoints", "per-layer", "monitor", "tables", "stability", "landscape", "budget",
    "theory-by-hand", "own-operators", "bound", "reading-the-report",
    "optimiser-blocks",
)  # fmt: skip


def on_config(config: Any) -> Any:
    """The navigation, from the pages that exist, and the version on every page."""
    docs = Path(config["docs_dir"])
    version = (SOURCE / "_version.py").read_text().split('"')[1]
    config["copyright"] = f"Hesscope {version}"
    config["markdown_extensions"].append("md_in_html")  # tables that unfold, in the gallery

    def pages(folder: str) -> list[str]:
        return sorted(path.relative_to(docs).as_posix() for path in (docs / folder).glob("*.md"))

    config["nav"] = [
        {"Hesscope": "index.md"},
        *({page: f"{page.lower()}.md"} for page in ("Quickstart", "Concepts")),
        {"How-to": [f"howto/{name}.md" for name in HOWTO]},
        {"Theory": ["theory.md", *pages("theory"), *pages("findings")]},
        {"Errata": ["errata.md", *pages("errata")]},
        {"Papers": ["gallery.md", *(page for page in ("claims.md", "coverage.md") if (docs / page).exists())]},
        {"Command line": "cli.md"},
        {
            "Reference": [
                f"reference/{name}.md" for name in ("analyze", *REFERENCE) if name == "analyze" or _exported(name)
            ]
        },
        *({"Benchmarks": name} for name in ("benchmarks.md",) if (docs / name).exists()),
        {"Troubleshooting": "troubleshooting.md"},
        {"Glossary": "glossary.md"},
        {"Reliability": "reliability.md"},
        {"Develop": "develop.md"},
        {"Decisions": pages("decisions")},
    ]
    return config


_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.S)


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw by themselves: the site fetches nothing."""

    def convert(found: re.Match[str]) -> str:
        from latex2mathml.converter import convert as to_mathml

        text = unescape(found[2]).strip()
        display = "block" if found[1] == "div" else "inline"
        return str(to_mathml(text[2:-2].strip(), display=display))

    return _FORMULA.sub(convert, html)


def on_files(files: Any, config: Any) -> Any:
    """Add one reference page per package, with what its `__init__` exports."""
    for package in REFERENCE:
        names = _exported(package)
        if names:
            about = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""
            body = "\n\n".join(f"::: hesscope.{name}" for name in names)
            page = f"# hesscope.{package}\n\n{about}\n\n{body}\n"
            files.append(File.generated(config, f"reference/{package}.md", content=page))
    facade = "# hesscope.analyze\n\n::: hesscope.analysis.run.analyze\n\n::: hesscope.analysis.config.AnalyzeConfig\n"
    files.append(File.generated(config, "reference/analyze.md", content=facade))
    words = ast.literal_eval(ast.parse((SOURCE / "report/glossary.py").read_text()).body[-1].value)  # type: ignore[attr-defined]
    listed = "\n".join(f"**{word}**\n: {said}\n" for word, said in words.items())
    about = "The words of the report, which holds them too."
    files.append(File.generated(config, "glossary.md", content=f"# Glossary\n\n{about}\n\n{listed}"))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill the lists."""
    here = Path(page.file.src_uri).parent

    def listed(found: re.Match[str]) -> str:
        folder = found.group(1)
        entries = []
        for file in sorted(files.documentation_pages(), key=lambda f: f.src_uri):
            path = Path(file.src_uri)
            if path.parent.as_posix() == folder and path.name != "index.md" and file.abs_src_path:
                link = path.relative_to(here) if here.as_posix() == folder else path
                entries.append(f"- [{_title(Path(file.abs_src_path))}]({link.as_posix()})")
        return "\n".join(entries) or "None yet."

    return re.sub(r"<!-- pages: (\w+) -->", listed, markdown)


def _exported(package: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse((SOURCE / package / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = ".".join([package] * (node.level == 1) + [node.module] * bool(node.module))
            names += [f"{home}.{alias.name}" for alias in node.names if not alias.name.startswith("_")]
    return sorted(names, key=lambda name: name.rpartition(".")[2].lower())


def _title(path: Path) -> str:
    found = re.search(r"^# (.+)$", path.read_text(), flags=re.M)
    return found.group(1) if found else path.stem
