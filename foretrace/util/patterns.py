"""Regular expressions that somebody gives, compiled by RE2: matching takes linear time.

Those of Python's ``re`` may take for ever, and nothing can interrupt them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.errors import ForetraceError

LONGEST = 1 << 16
"""Characters; longer ones take RE2 more memory than a question is worth."""


@lru_cache(maxsize=256)
def compile_given(pattern: str, error: type[ForetraceError], what: str = "pattern=") -> Any:
    """Return *pattern* compiled; it has ``search``, as those of ``re`` have.

    Raises
    ------
    error
        It is no regular expression that RE2 knows: look-around and back-references are none.

    Examples
    --------
    >>> from foretrace.errors import TransformError
    >>> compile_given("(.*)*(.*)*Q$", TransformError).search("a" * 10_000) is None
    True
    """
    import re2

    if len(pattern) > LONGEST:
        raise error(f"{what}{pattern[:40]!r}… has more than {LONGEST:,} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as wrong:
        said = wrong.args[0] if wrong.args else wrong
        reason = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    except UnicodeEncodeError:
        reason = "it holds half a character"
    raise error(
        f"{what}{pattern!r} is no regular expression: {reason}; escape special characters, and do "
        "without look-around and back-references"
    )


def searchable(text: str) -> str:
    r"""Return *text* as RE2 takes it: halves of characters become question marks.

    >>> searchable("a\ud800"), searchable("é")
    ('a?', 'é')
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
