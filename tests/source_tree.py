"""The source as syntax: modules of hesscope with what they import, define and call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


@dataclass(frozen=True)
class Import:
    """`target`, as written in the source of a module: at its top, inside a function, or for type checkers only."""

    target: str
    line: int
    deferred: bool
    types_only: bool


@dataclass(frozen=True)
class Module:
    """One file, for instance `hesscope.linalg.estimates.norms`."""

    path: Path

    @cached_property
    def name(self) -> str:
        return ".".join(self.path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def unit(self) -> str:
        """The first name below hesscope: a package or a single file of the top level."""
        parts = self.path.relative_to(SOURCE / "hesscope").with_suffix("").parts
        return parts[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), str(self.path))

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    def imports(self) -> Iterator[Import]:
        typed = {
            id(inner)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(self.tree):
            for target in self._targets(node):
                only_types = id(node) in typed
                yield Import(target, node.lineno, bool(node.col_offset) and not only_types, only_types)  # type: ignore[attr-defined]

    def _targets(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if not isinstance(node, ast.ImportFrom):
            return []
        base = node.module or ""
        if node.level:
            package = self.path.relative_to(SOURCE).parts[: -node.level]
            base = ".".join([*package, *([base] if base else [])])
        # `from .. import errors` names a unit, `from ..errors import refuse` names what is in one.
        return [f"{base}.{alias.name}" for alias in node.names] if base == "hesscope" else [base]

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call as dotted text, with its node."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                yield ast.unparse(node.func), node

    def definitions(self) -> set[str]:
        return {node.name for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}

    def constants(self) -> set[str]:
        """What is assigned at the top of the module."""
        assigned = [node for node in self.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        return {name.id for node in assigned for name in ast.walk(node) if isinstance(name, ast.Name) and _stored(name)}


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


MODULES = [Module(path) for path in sorted((SOURCE / "hesscope").rglob("*.py"))]
