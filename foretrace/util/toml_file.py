"""A file in TOML of which every key is known, read the same way for every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from foretrace.errors import RefusedError
from foretrace.util.text_file import parse_toml, read_text

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


def read_toml(path: Path, kind: type[T]) -> T:
    """Read the file at *path* as what *kind* says of its keys and values.

    Raises
    ------
    RefusedError
        It cannot be read, is no TOML, misses a value, has an unknown key or a wrong value.
    """
    content = parse_toml(read_text(path, RefusedError), str(path), RefusedError)
    try:
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RefusedError(f"{path}: {error}") from None
