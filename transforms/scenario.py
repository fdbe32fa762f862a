"""Scenarios: lists of what-ifs, read from text or TOML, and applied in order.

Text is parsed as literals and never evaluated: ``amp``, ``batch_size(64)`` is refused,
``batch_size(n=64)`` is right. A name with a colon, such as ``mine.py:slower(factor=2)``, is a
what-if of the user's own.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.transforms.costs.assumed import noting_use
from foretrace.transforms.edit.parameters import did_you_mean
from foretrace.transforms.edit.provenance import add_applied
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.signatures import check_given, describe_what_if
from foretrace.transforms.user_defined import run_user_defined
from foretrace.util.exhaustion import within_means
from foretrace.util.import_target import load_target
from foretrace.util.limits import TASKS
from foretrace.util.text_file import parse_toml, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from foretrace.graph.model import Graph

    Transform = Callable[..., Graph]

KEY = "transform"
"""What the tables of a scenario file are called."""
CUSTOM = "custom"
"""Name of a plain function that stands in a scenario."""


@dataclass(frozen=True)
class WhatIf:
    """One transform with its parameters; `what_if` and `parse_scenario` check these."""

    name: str
    function: Transform
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the text that parses to this what-if."""
        given = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.name}({given})" if given else self.name

    def __call__(self, graph: Graph) -> Graph:
        """Return *graph* as it would be after the change.

        Raises
        ------
        TransformError
            The what-if does not apply, or is a user's own and fails.
        """
        if ":" not in self.name:
            return self.function(graph, **self.parameters)
        return run_user_defined(self.name, self.function, graph, self.parameters)


Scenario: TypeAlias = tuple[WhatIf, ...]
ScenarioLike: TypeAlias = "str | Transform | Iterable[str | Transform]"
"""What may be asked: a text such as ``amp``, a what-if, a function of a graph, or several."""


def as_scenario(asked: ScenarioLike) -> Scenario:
    """Return *asked* as a scenario: a text, a what-if, a function of a graph, or several of them.

    Raises
    ------
    TransformError
        A text is wrong, see `parse_scenario`.

    Examples
    --------
    >>> [str(each) for each in as_scenario("amp")]
    ['amp']
    >>> [str(each) for each in as_scenario(["amp", lambda graph: graph])]
    ['amp', 'custom']
    """
    each_asked = [asked] if isinstance(asked, str) or callable(asked) else asked
    if not isinstance(each_asked, Iterable):
        raise TransformError(f"{asked!r} is no question: give a what-if, its text, or several")
    what_ifs: list[WhatIf] = []
    for one in each_asked:
        if isinstance(one, str):
            what_ifs += parse_scenario([one])
        else:
            what_ifs.append(one if isinstance(one, WhatIf) else WhatIf(CUSTOM, one))
    return tuple(what_ifs)


def is_built_in(change: WhatIf) -> bool:
    """Tell whether *change* is one of the list, and no function of the user's that has its name."""
    return TRANSFORMS.get(change.name) is change.function


def parse_scenario(texts: Iterable[str]) -> Scenario:
    """Read what-ifs such as ``amp`` or ``faster_kernels(pattern="gemm", speedup=2)``.

    A text that ends in ``.toml`` names a scenario file, see `load_scenario`.

    Raises
    ------
    TransformError
        A name is unknown, a parameter is missing, unknown or of the wrong type, or a value is
        no literal.

    Examples
    --------
    >>> [str(what_if) for what_if in parse_scenario(["faster_host(speedup=2)"])]
    ['faster_host(speedup=2)']
    >>> parse_scenario(["faster_hots(speedup=2)"])
    Traceback (most recent call last):
    foretrace.errors.TransformError: unknown what-if 'faster_hots'; did you mean faster_host?
    """
    what_ifs: list[WhatIf] = []
    for text in texts:
        if text.endswith(".toml"):
            what_ifs += load_scenario(text)
        else:
            what_ifs.append(_parse(text))
    return tuple(what_ifs)


def load_scenario(path: str | Path) -> Scenario:
    """Read a TOML file with one ``[[transform]]`` table per what-if: ``name`` and parameters.

    Raises
    ------
    TransformError
        The file cannot be read, or one of its what-ifs is wrong.
    """
    try:
        text = read_text(Path(path), TransformError)
        content = parse_toml(text, str(path), TransformError)
    except TransformError as error:
        raise TransformError(f"scenario file {error}") from None
    for key in content:
        if key != KEY:
            raise TransformError(
                f"scenario file {path}: {key!r} is unknown{did_you_mean(key, [KEY])}; "
                f"write one [[{KEY}]] table per what-if"
            )
    return read_tables(content.get(KEY), f"scenario file {path}")


def read_tables(tables: Any, where: str) -> Scenario:
    """Build a scenario from decoded TOML tables; *where* they stand is for messages."""
    is_list = isinstance(tables, list) and bool(tables)
    if not is_list or not all(
        isinstance(t, dict) and isinstance(t.get("name"), str) for t in tables
    ):
        raise TransformError(f'{where}: write one [[{KEY}]] table with name = "..." per what-if')
    try:
        return tuple(what_if(t["name"], {k: t[k] for k in t if k != "name"}) for t in tables)
    except TransformError as error:
        raise TransformError(f"{where}: {error}") from None


def what_if(name: str, parameters: Mapping[str, Any]) -> WhatIf:
    """Return the what-if *name*, its parameters checked against the signature."""
    function = find_transform(name)
    check_given(name, function, parameters)
    return WhatIf(name, function, dict(parameters))


def find_transform(name: str) -> Transform:
    """Return the what-if *name*: one of the list, or a user's own by ``where:function``.

    Raises
    ------
    TransformError
        The name is unknown, or there is no such function, or it takes no graph.
    """
    if name in TRANSFORMS:
        return TRANSFORMS[name]
    if ":" not in name:
        raise TransformError(f"unknown what-if {name!r}{did_you_mean(name, TRANSFORMS)}")
    function = load_target(name, "what-if", TransformError)
    try:
        others = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        raise TransformError(f"{name} is no Python function: write def change(graph)") from None
    if any(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in others):
        raise TransformError(
            f"{name} must take the graph first and everything else by name: "
            "write def change(graph, *, parameter)"
        )
    return function


def apply(graph: Graph, asked: ScenarioLike) -> Graph:
    """Apply every what-if to a valid graph, in order, and check what each changed.

    Raises
    ------
    TransformError
        A what-if does not apply to this graph.
    """
    for change in as_scenario(asked):
        with noting_use() as used, within_means(str(change), TransformError):
            changed = check(change(graph), graph)
        TASKS.check(len(changed.tasks), str(change), TransformError)
        assumed = tuple({**dict.fromkeys(graph.state.assumed), **used})
        graph = add_applied(graph, changed, change.name, str(change)).with_state(assumed=assumed)
    return graph


def names(scenario: Scenario) -> tuple[str, ...]:
    """Return the name of each what-if."""
    return tuple(each.name for each in scenario)


def describe_scenario(scenario: Scenario) -> tuple[str, ...]:
    """Return the text of each what-if."""
    return tuple(map(str, scenario))


def describe() -> list[dict[str, Any]]:
    """Return name, first docstring line, and parameters (name, type, default) of every what-if."""
    return [describe_what_if(name, function) for name, function in TRANSFORMS.items()]


def _parse(text: str) -> WhatIf:
    head, bracket, tail = text.strip().partition("(")
    where, colon, function = head.rpartition(":")
    try:
        node = ast.parse(function + bracket + tail, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise TransformError(
            f"cannot read the what-if {text!r}; write name or name(parameter=value, ...)"
        ) from None
    if isinstance(node, ast.Name):
        return what_if(where + colon + node.id, {})
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise TransformError(
            f"cannot read the what-if {text!r}; write name or name(parameter=value, ...)"
        )
    name = where + colon + node.func.id
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise TransformError(f"{name}: name each parameter, as in name(parameter=value)")
    keys = [str(keyword.arg) for keyword in node.keywords]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise TransformError(f"{name}: {twice} is given twice; give it once")
    values = [_literal(name, keyword) for keyword in node.keywords]
    return what_if(name, dict(zip(keys, values, strict=True)))


def _literal(name: str, keyword: ast.keyword) -> Any:
    try:
        return ast.literal_eval(keyword.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise TransformError(
            f"{name}: {keyword.arg} must be a literal (a number, a quoted text, True or False)"
        ) from None
