"""Ask a calibration for a what-if: a function with parameters, beside the texts of the file."""

from __future__ import annotations

import ast
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from foretrace.graph.model import Graph

    Transform = Callable[..., Graph]
    """A what-if with its parameters, such as ``partial(amp, dtype="bf16")``."""


def is_text_of(text: str, change: Transform) -> bool:
    """Tell whether *text*, as in a scenario, asks for *change*; defaults may be left out.

    Examples
    --------
    >>> def amp(graph, *, dtype="bf16"): ...
    >>> is_text_of("amp", partial(amp, dtype="bf16")), is_text_of("amp(dtype='fp16')", amp)
    (True, False)
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        keywords = node.keywords if isinstance(node, ast.Call) else []
        written = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return False
    function, given = _unpack(change)
    takes = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in takes if p.default is not inspect.Parameter.empty}
    return name == name_of(change) and {**defaults, **written} == {**defaults, **given}


def text_of(change: Transform) -> str:
    """Return *change* as a scenario has it.

    Examples
    --------
    >>> def batch_size(graph, *, n): ...
    >>> text_of(partial(batch_size, n=8))
    'batch_size(n=8)'
    """
    _, given = _unpack(change)
    return f"{name_of(change)}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def name_of(change: Transform) -> str:
    """Return the name of the what-if *change*."""
    return str(_unpack(change)[0].__name__)


def parameters_of(change: Transform) -> Mapping[str, Any]:
    """Return the parameters that the what-if *change* was given."""
    return _unpack(change)[1]


def _unpack(change: Transform) -> tuple[Any, Mapping[str, Any]]:
    """Return the function of a what-if and the parameters that it is given."""
    return (change.func, change.keywords) if isinstance(change, partial) else (change, {})
