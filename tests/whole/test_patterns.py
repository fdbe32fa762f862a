"""Patterns of the project's own take linear time over whatever a file holds."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from foretrace.errors import TransformError
from foretrace.util.text_file import parse_toml

MOST_SECONDS = 500
"""Of a processor, for all of them; one that is not linear takes more alone."""


def _bound() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))


@pytest.mark.slow
def test_patterns_of_our_own_are_linear() -> None:
    """Each over long texts made for it; the last line that was written names one that is not."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pumped"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_bound,
    )

    assert done.stdout.splitlines()[-1] == "done", done.stdout.splitlines()[-1] + done.stderr


@pytest.mark.parametrize(
    "hidden",
    [
        'c = """a" b""" , {key} = 1, d = ""',
        "c = '''\"''', {key} = 1",
        'c = "\\\\", {key} = 1',
        '# "\n{key} = 1',
    ],
)
def test_a_key_of_many_parts_hides_behind_no_quote(hidden: str) -> None:
    """Strings of all four kinds, and comments, end where TOML ends them."""
    key = ".".join("a" * 100)
    text = hidden.format(key=key) if "#" in hidden else f"x = {{{hidden.format(key=key)}}}"
    with pytest.raises(TransformError, match="more than 64 parts"):
        parse_toml(text, "x.toml", TransformError)
