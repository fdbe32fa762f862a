"""What a what-if takes: its parameters, read off its signature, and values checked against them.

Every function here takes a what-if as it stands in the list: the graph first, everything else by
name only.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

from foretrace.errors import TransformError
from foretrace.transforms.edit.parameters import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Transform = Callable[..., Any]

EXCEPT = "except_"
"""Parameters that begin so mean the opposite of what their other half says: no typing error."""
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list, tuple),
}
LARGEST = 1 << 63


def describe_what_if(name: str, function: Transform) -> dict[str, Any]:
    """Return name, first docstring line, and parameters (name, type, default) of a what-if."""
    return {
        "name": name,
        "effect": (inspect.getdoc(function) or "").split("\n", 1)[0],
        "parameters": [
            {
                "name": p.name,
                "type": type_of(p),
                "required": _is_required(p),
                "default": None if _is_required(p) else p.default,
            }
            for p in parameters_of(function).values()
        ],
    }


def check_given(name: str, function: Transform, given: Mapping[str, Any]) -> None:
    """Check the parameters *given* to the what-if *name*.

    Raises
    ------
    TransformError
        One is unknown or of the wrong type, or some are missing: these are named all at once.
    """
    takes = parameters_of(function)
    for key, value in given.items():
        if key not in takes:
            raise TransformError(
                f"{name} has no parameter {key!r}; it has {', '.join(takes) or 'none'}"
                + did_you_mean(key, [each for each in takes if not each.startswith(EXCEPT)])
            )
        _check_type(name, takes[key], value)
    missing = [p for p in takes.values() if _is_required(p) and p.name not in given]
    if missing:
        wanted = " and ".join(f"{p.name} ({type_of(p)})" for p in missing)
        example = _example(name, function, missing)
        word = "parameter" if len(missing) == 1 else "parameters"
        raise TransformError(f"{name} needs the {word} {wanted}, as in {example}")


def parameters_of(function: Transform) -> dict[str, inspect.Parameter]:
    """Return the parameters a user may give: all that are keyword-only."""
    every = inspect.signature(function).parameters.values()
    return {p.name: p for p in every if p.kind is inspect.Parameter.KEYWORD_ONLY}


def type_of(parameter: inspect.Parameter) -> str:
    """Return the type a parameter is declared with, as it is written; "Any" where none is."""
    if parameter.annotation is inspect.Parameter.empty:
        return "Any"
    declared = parameter.annotation
    return declared if isinstance(declared, str) else inspect.formatannotation(declared)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _example(name: str, function: Transform, missing: Sequence[inspect.Parameter]) -> str:
    """Return how the what-if is written: as in its docstring, or with gaps to fill in."""
    own = re.escape(getattr(function, "__name__", name))
    for call in re.findall(rf"\b{own}\(\w+, (.*?)\)", inspect.getdoc(function) or ""):
        try:
            ast.parse(f"f({call})")
        except SyntaxError:
            continue
        return f"{name}({call})"
    return f"{name}({', '.join(f'{p.name}=...' for p in missing)})"


def _check_type(name: str, parameter: inspect.Parameter, value: Any) -> None:
    options = [option.strip() for option in type_of(parameter).split("|")]
    if not any(_fits(option, value) for option in options):
        raise TransformError(
            f"{name}: {parameter.name}={value!r} has the wrong type; give {type_of(parameter)}"
        )
    if _is_beyond(value):
        raise TransformError(
            f"{name}: {parameter.name} is out of range: a number of more than 64 bits"
        )


def _is_beyond(value: Any) -> bool:
    """Tell whether *value* is, or holds, a whole number that no table can hold."""
    if isinstance(value, dict):
        return _is_beyond([*value, *value.values()])
    if isinstance(value, list | tuple | set):
        return any(map(_is_beyond, value))
    return isinstance(value, int) and not -LARGEST <= value < LARGEST


def _fits(declared: str, value: Any) -> bool:
    """Tell whether *value* is of the type *declared*; every value is of a type not known here."""
    outer, _, inner = declared.removesuffix("]").partition("[")
    if outer == "None":
        return value is None
    if outer not in TYPES:
        return True
    if isinstance(value, bool) and outer != "bool":
        return False
    items: Any = value if inner in TYPES and isinstance(value, TYPES[outer]) else ()
    return isinstance(value, TYPES[outer]) and all(_fits(inner, item) for item in items)
