"""Scenarios that a file or a request names, and not the person at the command line.

An archive, a table of results or a browser may ask for what-ifs of the list and for nothing else:
neither for code by ``where:function``, nor for a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.transforms.scenario import parse_scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foretrace.transforms.scenario import Scenario

LONGEST = 8_192
"""Characters of a what-if."""
_WHATIF = re.compile(r"^\s*([A-Za-z_]\w*)\s*(\(.*\)\s*)?", re.DOTALL)


def parse_foreign_scenario(texts: Sequence[str]) -> Scenario:
    """Return the scenario of *texts*; nothing is imported and no file is opened for it.

    Raises
    ------
    TransformError
        One is wrong, is none of the list, or names a file: of a scenario, a cluster, or code.

    Examples
    --------
    >>> [str(each) for each in parse_foreign_scenario(["faster_host(speedup=2)"])]
    ['faster_host(speedup=2)']
    >>> parse_foreign_scenario(["mine.py:slower"])
    Traceback (most recent call last):
    foretrace.errors.TransformError: 'mine.py:slower' is no what-if of the list; code and \
files are not read here
    """
    for text in texts:
        match = _WHATIF.fullmatch(text) if len(text) <= LONGEST else None
        if match is None:
            raise TransformError(
                f"{text[:60]!r} is no what-if of the list; code and files are not read here"
            )
    scenario = parse_scenario(texts)
    for what_if in scenario:
        for name, value in what_if.parameters.items():
            if any(names_file(each) for each in _texts([value])):
                raise TransformError(f"{what_if.name}: {name} names a file; it is not read here")
    return scenario


def names_file(text: str) -> bool:
    """Tell whether *text* would be opened as a file, see `foretrace.transforms.cluster.file`."""
    try:
        return Path(text).suffix == ".toml" or Path(text).exists()
    except (OSError, ValueError):
        return False


def _texts(values: Iterable[object]) -> Iterator[str]:
    """Yield every text within literals."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _texts((*value, *value.values()))
        elif isinstance(value, tuple | list | set):
            yield from _texts(value)
