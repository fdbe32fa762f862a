"""``python -m tests.support.lower_bounds``: the oldest versions that pyproject.toml allows, pinned.

`make test-oldest` installs exactly these, so that a bound says what has been tried.
"""

from __future__ import annotations

import re
import sys
import tomllib

from tests.support.paths import ROOT

BOUND = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[\w,]+\])?>=([\d.]+)")


def lower_bounds(text: str) -> dict[str, str]:
    r"""Return the lowest version of each package in the *text* of a pyproject.toml.

    >>> lower_bounds('[project]\ndependencies = ["numpy>=1.26", "x[y]>=2"]')
    {'numpy': '1.26', 'x': '2'}
    """
    project = tomllib.loads(text)["project"]
    groups = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    bounds: dict[str, str] = {}
    for requirement in (each for group in groups for each in group):
        match = BOUND.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"{requirement}: give a lower bound, as in {requirement}>=1.0")
        if bounds.setdefault(match[1], match[2]) != match[2]:
            raise SystemExit(f"{match[1]} has two lower bounds")
    return bounds


if __name__ == "__main__":
    for name, version in lower_bounds((ROOT / "pyproject.toml").read_text("utf-8")).items():
        sys.stdout.write(f"{name}=={version}\n")
