"""What a shell may complete: what-ifs with their parameters, and names of the zoo's models.

Signatures are read from the source, since importing every what-if takes a second and a user waits.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer  # noqa: TC002 - typer reads the annotation

from foretrace import transforms

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(transforms.__path__[0])
REGISTRY = "TRANSFORMS"

Word = tuple[str, str]
"""What may stand on the command line, and what it means."""


class _Signature(NamedTuple):
    effect: str
    types: dict[str, str]
    required: tuple[str, ...]


def what_ifs(incomplete: str) -> list[Word]:
    """Return the what-ifs, or the parameters of one, that begin as *incomplete* does.

    >>> what_ifs("faster_h")[0][0]
    'faster_host(speedup='
    >>> what_ifs("batch_size(n=64, re")
    [('batch_size(n=64, recorded=', 'int | None')]
    """
    if "(" in incomplete:
        return list(_parameters(incomplete))
    words = list(_names(incomplete))
    if not _bracket_breaks_words():
        return words
    return list({word.partition("(")[0]: meaning for word, meaning in words}.items())


def what_if_names(incomplete: str) -> list[Word]:
    """Return the names of what-ifs that begin as *incomplete* does."""
    return [(name, _read(name, home).effect) for name, home in _homes(incomplete)]


def models(context: typer.Context, incomplete: str) -> list[str]:
    """Return comma-separated names of models, where the word before is ``--models``."""
    before = next(iter(context.params.values()), None) or [""]
    if before[-1] != "--models":
        return []
    from foretrace.tracer.lab.zoo.models import BY_NAME

    named, comma, begun = incomplete.rpartition(",")
    return [named + comma + name for name in BY_NAME if name.startswith(begun)]


def _names(incomplete: str) -> Iterator[Word]:
    for name, home in _homes(incomplete):
        signature = _read(name, home)
        if signature.required:
            yield f"{name}({signature.required[0]}=", signature.effect
        else:
            yield name, signature.effect
            if name == incomplete and signature.types:
                yield f"{name}(", "with parameters"


def _parameters(incomplete: str) -> Iterator[Word]:
    name, _, given = incomplete.partition("(")
    begun = re.split(r"[(,]\s*", incomplete)[-1]
    before = incomplete.removesuffix(begun)
    for signature in (_read(name, home) for each, home in _homes(name) if each == name):
        for parameter, kind in signature.types.items():
            is_given = re.search(rf"\b{parameter}\s*=", given)
            if parameter.startswith(begun) and not is_given:
                needed = ", needed" if parameter in signature.required else ""
                yield f"{before}{parameter}=", f"{kind}{needed}"


def _bracket_breaks_words() -> bool:
    """Tell whether bash is asking, which takes a bracket for its own, and no quotation is open."""
    typed = os.environ.get("COMP_WORDS", "")
    is_open = typed.count("'") % 2 or typed.count('"') % 2
    return os.environ.get("_FORETRACE_COMPLETE") == "complete_bash" and not is_open


def _homes(incomplete: str) -> list[tuple[str, str]]:
    """Return the what-ifs of the registry that begin as *incomplete* does, with their modules."""
    tree = ast.parse((FOLDER / "registry.py").read_text("utf-8"))
    homes = {
        alias.name: str(node.module).removeprefix(f"{transforms.__name__}.")
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    registry = next(
        node
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == REGISTRY
    )
    listed = [node.id for node in ast.walk(registry) if isinstance(node, ast.Name)]
    return [(name, homes[name]) for name in listed if name in homes and name.startswith(incomplete)]


def _read(name: str, home: str) -> _Signature:
    """Return what the source of the what-if *name* says of it."""
    path = FOLDER.joinpath(*home.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text("utf-8"))
    (function,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    named = function.args.kwonlyargs
    types = {each.arg: ast.unparse(each.annotation) for each in named if each.annotation}
    is_needed = [default is None for default in function.args.kw_defaults]
    required = [each.arg for each, needed in zip(named, is_needed, strict=True) if needed]
    effect = (ast.get_docstring(function) or "").split("\n", 1)[0]
    return _Signature(effect, types, tuple(required))
