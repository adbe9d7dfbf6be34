"""Results as tables: for pandas, spreadsheets, papers and notebooks; pandas itself is loaded only when asked for."""

from __future__ import annotations

import base64
import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, ClassVar

import numpy as np

from .errors import HesscopeError
from .files import as_path, make_folder, refuse_foreign, replace

ROWS_SHOWN = 20
_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "λ": r"$\lambda$", "±": r"$\pm$", "−": "$-$"}
    | {
        "‖": r"$\|$",
        "²": r"$^2$",
        "⊗": r"$\otimes$",
        "ᵀ": r"$^\top$",
        "∇": r"$\nabla$",
        "≤": r"$\le$",
        "Σ": r"$\Sigma$",
    }
)


class Tabular:
    """What results have in common for people who want numbers elsewhere: `table` is all that a class has to say."""

    _pictured: ClassVar[bool] = False  # shown by a notebook with its figure, where that says more than the table

    def table(self) -> dict[str, Any]:
        """The table of this result, column by column; by default its fields and their values."""
        named = {name: value for name, value in field_values(self) if _is_plain(value)}
        return {"what": list(named), "value": [_text(value) for value in named.values()]}

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain Python numbers, texts, lists and dicts."""
        return {name: plain(value) for name, value in field_values(self)}

    def to_dataframe(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise HesscopeError(
                "a DataFrame needs pandas; it is not installed. pip install hesscope[notebook]"
            ) from error
        return pandas.DataFrame({name: list(values) for name, values in self.table().items()})

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The table as CSV; with a `path` it is written there too, over nothing but an earlier table of these columns."""
        columns, out = self.table(), io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*[[plain(cell) for cell in column] for column in columns.values()], strict=True))
        text = out.getvalue()
        if path is not None:
            target = as_path(path, "the path of a table")
            head = text.partition("\n")[0]
            if target.is_dir() or target.is_symlink() or (target.exists() and _first_line(target) != head):
                refuse_foreign(target)
            make_folder(target.parent)
            replace(target, lambda file: file.write(text.encode()))
        return text

    def to_latex(self, caption: str = "") -> str:
        """The table for a paper (packages: booktabs)."""
        columns = self.table()
        kinds = "".join("r" if _is_numeric(values) else "l" for values in columns.values())
        body = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in zip(*columns.values(), strict=True)]
        head = " & ".join(_tex(name) for name in columns) + r" \\"
        table = [
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
        if caption:
            table = [r"\begin{table}", r"\centering", *table, rf"\caption{{{_tex(caption)}}}", r"\end{table}"]
        return "\n".join(table) + "\n"

    def plot(self) -> Any:
        """A matplotlib Figure of this result."""
        return self._figure()

    def _figure(self, **options: Any) -> Any:
        from .plots.of_results import figure_of_result

        return figure_of_result(self, **options)

    def _repr_html_(self) -> str:
        """The result as a notebook shows it: one line, a picture where there is one, and the first rows of the table."""
        columns = self.table()
        rows = list(zip(*columns.values(), strict=True))
        head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in rows[:ROWS_SHOWN]
        )
        more = f"<p>{len(rows) - ROWS_SHOWN} more rows: .to_dataframe()</p>" if len(rows) > ROWS_SHOWN else ""
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        return f"<div><p><code>{escape(repr(self))}</code></p>{self._image()}{table}</div>"

    def _image(self) -> str:
        if not self._pictured:
            return ""
        from .plots.style import png_of

        try:
            data = base64.b64encode(png_of(self.plot(), 90)).decode()
        except HesscopeError:  # without matplotlib the table alone is shown
            return ""
        return f'<img alt="{escape(type(self).__name__)}" src="data:image/png;base64,{data}">'

    def __repr__(self) -> str:
        return _summary(self)


def plain(value: Any) -> Any:
    """A value as plain Python: arrays and tensors as lists, results as dicts."""
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(item) for name, item in field_values(value)}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def short(value: Any, most: int = 60) -> str:
    """A value in a few words: what one line of a screen can hold."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.ndim == 1 and 0 < value.size <= 4 and value.dtype.kind in "fi":
            return "[" + ", ".join(f"{item:.4g}" for item in value) + "]"
        first = f"[{value[0]:.4g}, ...] " if value.ndim == 1 and value.size and value.dtype.kind in "fi" else ""
        return f"{first}<{' x '.join(map(str, value.shape)) or '1'} {value.dtype}>"
    if isinstance(value, Tabular):
        return f"{type(value).__name__}(...)"
    if isinstance(value, tuple | list | Mapping) and len(repr(value)) > most:
        return f"<{len(value)} {'entries' if len(value) != 1 else 'entry'}>"
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, np.generic):
        value = value.item()
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 4]}...{text[-1]}"


def _summary(result: Any) -> str:
    parts = [f"{name}={short(value)}" for name, value in field_values(result) if not name.startswith("_")]
    while len(text := f"{type(result).__name__}({', '.join(parts)})") > 240 and len(parts) > 1:
        parts = [*parts[: -2 if parts[-1] == "..." else -1], "..."]
    return text


def field_values(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass and what they hold, in order."""
    return [(f.name, getattr(value, f.name)) for f in fields(value)]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | np.generic | tuple | np.ndarray)


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(cell, int | float | np.number) and not isinstance(cell, bool) for cell in values)


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float | np.floating):
        return "" if np.isnan(cell) else f"{float(cell):.4g}"
    return cell if isinstance(cell, str) else short(cell)


def _tex(cell: Any) -> str:
    return _text(cell).translate(_LATEX)


def _first_line(path: Any) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return ""
