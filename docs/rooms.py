"""The rooms of the package, read from the code: who imports whom, how many modules, how long.

``python -m docs.rooms`` names imports of own modules inside functions, which would hide an arrow
from the drawing, and ends with 1 where there are any; ``make lint`` runs it. Circles, arrows
upwards and modules without a layer are found by import-linter, from the same contracts that give
the drawing its rows. `docs.rooms_drawing` draws what this reads.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import grimp
import networkx as nx

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "foretrace"
MAY_IMPORT_LATE = (
    "foretrace.__main__",
    "foretrace.cli",
    "foretrace.tracer.lab.pairs",
    "foretrace.tracer.readers.parquet",
)
"""Doors that load what one command needs, and recording where only torch is installed."""


@dataclass(frozen=True)
class Room:
    """A package, or a module that has a layer of its own.

    Attributes
    ----------
    name
        As it is imported.
    modules, lines
        How many modules lie in it and below, and their length together.
    rows
        The rooms in it, each row above those that it imports.
    arrows
        (importer, imported) among these rooms; what follows from other arrows is left out.
    """

    name: str
    modules: int
    lines: int
    rows: tuple[tuple[Room, ...], ...] = ()
    arrows: tuple[tuple[str, str], ...] = ()


def main() -> int:
    """Print every import of an own module inside a function; return 1 where there is one."""
    late = [
        f"{module}:{line}: own module imported in a function: {statement}"
        for module in sorted(_imports().modules)
        if not module.startswith(MAY_IMPORT_LATE)
        for line, statement in late_imports(_path(module).read_text("utf-8"))
    ]
    sys.stdout.writelines(f"{each}\n" for each in late)
    return bool(late)


def late_imports(text: str) -> list[tuple[int, str]]:
    """Return line and statement of each import of an own module inside a function of *text*."""
    imports = {
        (node.lineno, ast.unparse(node))
        for function in ast.walk(ast.parse(text))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and _is_own(node)
    }
    return sorted(imports)


def _is_own(node: ast.Import | ast.ImportFrom) -> bool:
    """Tell whether *node* imports something of the package."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or str(node.module).split(".")[0] == PACKAGE
    return any(alias.name.split(".")[0] == PACKAGE for alias in node.names)


def read_rooms() -> Room:
    """Return the package with all its rooms.

    Raises
    ------
    networkx.NetworkXUnfeasible
        Rooms import each other in a circle.
    """
    return _room(PACKAGE, _imports(), _layers())


def _imports() -> grimp.ImportGraph:
    return grimp.build_graph(PACKAGE, cache_dir=None)


def _layers() -> dict[str, list[list[str]]]:
    """Return, per package with a contract of layers, the names in each layer, from the top."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return {
        container: [layer.split(" | ") for layer in contract["layers"]]
        for contract in declared["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
    }


def _room(name: str, imports: grimp.ImportGraph, layers: dict[str, list[list[str]]]) -> Room:
    modules = [name, *imports.find_descendants(name)]
    lines = sum(len(_path(module).read_text("utf-8").splitlines()) for module in modules)
    declared = [[f"{name}.{each}" for each in layer] for layer in layers.get(name, [])]
    inner = {each for each in imports.find_children(name) if imports.find_children(each)}
    arrows = _arrows(name, inner.union(*declared), imports)
    rows = tuple(
        tuple(_room(each, imports, layers) for each in sorted(row))
        for layer in declared or [sorted(inner)]
        for row in nx.topological_generations(arrows.subgraph(layer))
    )
    return Room(
        name, len(modules), lines, rows, tuple(sorted(nx.transitive_reduction(arrows).edges))
    )


def _arrows(name: str, shown: set[str], imports: grimp.ImportGraph) -> nx.DiGraph:
    """Return who of *shown* imports whom, by way of modules of the room *name* that are not."""
    children = sorted(imports.find_children(name))
    direct = nx.DiGraph()
    direct.add_nodes_from(children)
    for child in children:
        for module in sorted({child, *imports.find_descendants(child)}):
            for imported in imports.find_modules_directly_imported_by(module):
                other = ".".join(imported.split(".")[: name.count(".") + 2])
                if other in direct and other != child:
                    direct.add_edge(child, other)
    arrows = nx.DiGraph()
    arrows.add_nodes_from(sorted(shown))
    for room in sorted(shown):
        hidden = direct.subgraph({room, *(set(children) - shown)})
        reached = nx.descendants(hidden, room) | {room}
        arrows.add_edges_from(
            (room, other) for each in reached for other in direct[each] if other in shown - {room}
        )
    return arrows


def _path(module: str) -> Path:
    folder = ROOT.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


if __name__ == "__main__":
    sys.exit(main())
