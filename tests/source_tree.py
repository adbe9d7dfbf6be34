"""The source as syntax: modules of hesscope with what they import, define and call."""

from __future__ import annotations

import ast
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

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        typed = {
            id(inner)
            for node in self.nodes
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        return [
            Import(target, node.lineno, bool(node.col_offset) and id(node) not in typed, id(node) in typed)
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for target in self._targets(node)
        ]

    def _targets(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        base = node.module or ""
        if node.level:
            package = self.path.relative_to(SOURCE).parts[: -node.level]
            base = ".".join([*package, *([base] if base else [])])
        # `from .. import errors` names a unit, `from ..errors import refuse` names what is in one.
        return [f"{base}.{alias.name}" for alias in node.names] if base == "hesscope" else [base]

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Every call as dotted text, with its node."""
        called = [node for node in self.nodes if isinstance(node, ast.Call)]
        return [(ast.unparse(node.func), node) for node in called if isinstance(node.func, ast.Name | ast.Attribute)]

    def definitions(self) -> set[str]:
        return {node.name for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}

    def constants(self) -> set[str]:
        """What is assigned at the top of the module."""
        assigned = [node for node in self.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        return {name.id for node in assigned for name in ast.walk(node) if isinstance(name, ast.Name) and _stored(name)}


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


MODULES = [Module(path) for path in sorted((SOURCE / "hesscope").rglob("*.py"))]
