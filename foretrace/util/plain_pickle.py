"""Plain containers out of a pickle, and nothing else: no class, no function, no code.

The instructions are interpreted here, one by one, from a list of those that make numbers, texts,
lists, tuples and dictionaries. Whatever names, calls or builds anything is refused before it does.
"""

from __future__ import annotations

import pickletools
import re
from typing import TYPE_CHECKING, Any

from foretrace.util.exhaustion import within_means

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foretrace.errors import ForetraceError
    from foretrace.util.limits import Limit

LITERALS = re.compile(r"^(BIN)?INT[12]?$|^LONG[14]?$|^(BIN)?FLOAT$|(STRING|BYTES8?|UNICODE8?)$")
"""Instructions that say a number or a text."""
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
REMEMBERED = ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT")
LOOKED_UP = ("GET", "BINGET", "LONG_BINGET")
IGNORED = frozenset({"PROTO", "FRAME"})
KEYS = (str, bytes, int, float, bool, type(None))
"""What a key may be: nothing whose hash takes long."""
MARK = object()
MOST_DEPTH = 64
"""Containers within containers: a snapshot of torch has six."""


def load_plain(raw: bytes, where: str, error: type[ForetraceError], most: Limit) -> Any:
    """Return what the pickle *raw* holds; *where* it came from is for messages.

    Raises
    ------
    error
        It is no pickle, is cut short, holds more than *most*, containers more than `MOST_DEPTH`
        deep or within themselves, or anything but plain containers.

    Examples
    --------
    >>> import pickle
    >>> from foretrace.errors import TraceError
    >>> from foretrace.util.limits import OBJECTS
    >>> load_plain(pickle.dumps({"a": [1, (2.5, None)]}), "x", TraceError, OBJECTS)
    {'a': [1, (2.5, None)]}
    """
    machine = _Machine(where, error, most.allowed(len(raw)), most)
    try:
        with within_means(where, error):
            value = machine.run(raw)
            if _is_too_deep(value):
                raise error(f"{where}: its containers lie more than {MOST_DEPTH} deep")
            return value
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as failed:
        if isinstance(failed, error):
            raise
        raise error(f"{where}: no sound pickle ({failed})") from None


def _is_too_deep(value: Any) -> bool:
    """Tell whether containers in *value* lie too deep; each is looked at once per depth."""
    level = [value]
    for _ in range(MOST_DEPTH):
        inner = [each for outer in level for each in _parts(outer)]
        containers = (each for each in inner if isinstance(each, (list, tuple, dict)))
        level = list({id(each): each for each in containers}.values())
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


class _Machine:
    """A stack and a memo, and the few instructions that fill them."""

    def __init__(self, where: str, error: type[ForetraceError], most: int, limit: Limit) -> None:
        """Start empty."""
        self.where, self.error, self.most, self.limit = where, error, most, limit
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, raw: bytes) -> Any:
        """Follow the instructions to the last one, and return what they leave."""
        for count, (code, argument, _) in enumerate(pickletools.genops(raw)):
            if count > self.most:
                raise self.error(self.limit.refusal(self.where, self.most))
            if code.name == "STOP":
                break
            self._step(code.name, argument)
        (value,) = self.stack
        if value is MARK:
            raise ValueError("it ends within a list")
        return value

    def _step(self, name: str, argument: Any) -> None:
        if LITERALS.search(name):
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in EMPTY:
            self.stack.append(EMPTY[name]())
        elif name in SHORT_TUPLES:
            self._fold(SHORT_TUPLES[name])
        elif name == "MARK":
            self.stack.append(MARK)
        elif name not in IGNORED:
            self._compose(name, argument)

    def _compose(self, name: str, argument: Any) -> None:
        """Put values together, or look one up."""
        if name in REMEMBERED:
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in LOOKED_UP:
            self.stack.append(self.memo[argument])
        elif name == "TUPLE":
            self.stack.append(tuple(self._to_mark()))
        elif name == "POP":
            self.stack.pop()
        elif name in ("APPEND", "APPENDS"):
            self._extend(self._to_mark() if name == "APPENDS" else [self.stack.pop()])
        elif name in ("SETITEM", "SETITEMS"):
            self._update(self._to_mark() if name == "SETITEMS" else self._pop_pair())
        elif name in ("LIST", "DICT"):
            items = self._to_mark()
            self.stack.append([] if name == "LIST" else {})
            (self._extend if name == "LIST" else self._update)(items)
        else:
            raise self.error(
                f"{self.where}: its pickle asks for {name}, which makes more than plain "
                "containers; it was not read"
            )

    def _fold(self, count: int) -> None:
        items = self.stack[-count:]
        if len(items) < count or any(item is MARK for item in items):
            raise ValueError("a tuple lacks its parts")
        self.stack[-count:] = [tuple(items)]

    def _to_mark(self) -> list[Any]:
        """Take everything behind the last mark from the stack."""
        at = len(self.stack) - 1
        while self.stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise ValueError("a list has no beginning")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _pop_pair(self) -> list[Any]:
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]

    def _extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list or any(item is MARK for item in items):
            raise ValueError("what is no list is appended to")
        self.stack[-1].extend(items)

    def _update(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise ValueError("what is no dictionary gets keys")
        keys, values = items[::2], items[1::2]
        if any(type(key) not in KEYS for key in keys) or any(v is MARK for v in values):
            raise ValueError("a key is no text and no number")
        self.stack[-1].update(zip(keys, values, strict=True))
