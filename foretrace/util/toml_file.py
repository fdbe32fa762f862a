"""A file in TOML of which every key is known, read the same way for every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from foretrace.errors import RefusedError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_toml(path: Path, kind: type[T]) -> T:
    """Read the file at *path* as what *kind* says of its keys and values.

    Raises
    ------
    RefusedError
        It cannot be read, is no TOML, misses a value, has an unknown key or a wrong value.
    """
    try:
        text = path.read_bytes().removeprefix(BYTE_ORDER_MARK).decode("utf-8")
        return msgspec.toml.decode(text, type=kind)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise RefusedError(f"{path}: no text in UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedError(f"{path}: {error}") from None
