"""``python -m tests.support.pumped``: every pattern of the project over long texts made for it.

A pattern that tries each place of a text and looks at all the rest from there takes the square of
its length; over 100,000 characters that is minutes, where a linear one takes milliseconds. Each
pattern is named on a line before it runs, so that whoever ends the process sees which one it was.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foretrace

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTH = 100_000
MOST_BEGINNINGS, MOST_CHARACTERS, MOST_BRANCHES = 12, 6, 4
ENDS = ("\x01", "a", "\n!")
GROUPS = ("SUBPATTERN", "ATOMIC_GROUP")
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
CLASSES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_NOT_WORD": " "}
PARSER: Any = importlib.import_module("re._parser")
CALLS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def patterns() -> dict[tuple[Any, int], str]:
    """Return where each pattern is, by its text and flags: in modules, and inside functions."""
    found: dict[tuple[Any, int], str] = {}
    for info in pkgutil.walk_packages(foretrace.__path__, "foretrace."):
        if info.name.endswith("__main__"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            for each in _inside(value):
                found.setdefault((each.pattern, each.flags), f"{info.name}.{name}")
        for each, line in _in_functions(Path(str(module.__file__)).read_text("utf-8")):
            found.setdefault((each.pattern, each.flags), f"{info.name}:{line}")
    return found


def _inside(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _inside(each, depth - 1)


def _in_functions(source: str) -> Iterator[tuple[re.Pattern[Any], int]]:
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        given = node.args[0]
        is_ours = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if is_ours and node.func.attr in CALLS and isinstance(given, ast.Constant):
            flags = re.IGNORECASE if "IGNORECASE" in ast.unparse(node) else 0
            yield re.compile(given.value, flags), node.lineno


def texts(pattern: re.Pattern[Any], length: int = LENGTH) -> Iterator[str]:
    """Give texts that go on at what *pattern* repeats, or with all before it, without its end."""
    parsed = PARSER.parse(pattern.pattern, pattern.flags & re.VERBOSE)
    known = sorted(set(_characters(parsed)), key=lambda each: (each.isalpha(), each))
    beginnings = {begun for branch in range(MOST_BRANCHES) for begun in _before(parsed, branch)}
    for begun in sorted(beginnings, key=len)[:MOST_BEGINNINGS]:
        for end in ENDS:
            if begun:
                yield begun * (length // len(begun)) + end
            for character in known[:MOST_CHARACTERS]:
                yield begun + character * length + end


def _before(parsed: Any, branch: int) -> list[str]:
    """Return what may stand before each part that repeats; *branch* chooses alternatives."""
    begun, found = "", []
    for name, argument in _steps(parsed, branch):
        if name in REPEATS:
            found += [begun + inside for inside in ("", *_before(argument[2], branch))]
            once = _sample(argument[2], branch)
            found.append(begun + once)
            begun += once if argument[0] else ""
        else:
            begun += next(_characters([(name, argument)]), "")
    return [*found, begun[:-1]]


def _steps(parsed: Any, branch: int) -> Iterator[tuple[str, Any]]:
    for operation, argument in parsed:
        name = str(operation)
        if name in GROUPS:
            yield from _steps(argument[-1] if name == "SUBPATTERN" else argument, branch)
        elif name == "BRANCH":
            yield from _steps(argument[1][branch % len(argument[1])], branch)
        else:
            yield name, argument


def _sample(parsed: Any, branch: int) -> str:
    return "".join(
        _sample(argument[2], branch) if name in REPEATS
        else next(_characters([(name, argument)]), "")
        for name, argument in _steps(parsed, branch)
    )  # fmt: skip


def _characters(parsed: Any) -> Iterator[str]:
    """Give a character for each class and literal of a pattern."""
    for operation, argument in parsed:
        match str(operation):
            case "LITERAL":
                yield chr(argument)
            case "RANGE":
                yield chr(argument[0])
            case "CATEGORY":
                yield CLASSES.get(str(argument), "a")
            case "ANY" | "NOT_LITERAL" | "NEGATE" as name:
                yield '"' if name == "ANY" else "z"
            case _:
                for each in _inner(str(operation), argument):
                    yield from _characters(each)


def _inner(name: str, argument: Any) -> list[Any]:
    """Return the patterns inside one part of a pattern."""
    if name in REPEATS:
        return [argument[2]]
    if name == "BRANCH":
        return list(argument[1])
    if name in GROUPS:
        return [argument[-1] if name == "SUBPATTERN" else argument]
    return [argument] if name == "IN" else []


def main() -> None:
    """Run every pattern over its texts."""
    for (text, flags), where in patterns().items():
        sys.stdout.write(f"{where} {text!r}\n")
        sys.stdout.flush()
        pattern: re.Pattern[Any] = re.compile(text, flags)
        for each in texts(pattern):
            over = each if isinstance(text, str) else each.encode()
            pattern.search(over)
            pattern.fullmatch(over)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
