"""What the command line loads before it has anything to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

HEAVY = ("joblib", "matplotlib", "networkx", "numba", "numpy", "pandas", "pyarrow", "rich", "scipy")
TORCH = ("torch", "torchvision", "transformers", "lightning")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["whatif", "--help"], ["job"]])
def test_help_needs_nothing_heavy(arguments: list[str]) -> None:
    """Nothing that commands run is imported, nor what draws their results."""
    code = (
        "import sys; from foretrace.cli import app; app.run(sys.argv[1:]); "
        f"print([m for m in {HEAVY + TORCH!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout
    assert done.stderr == "[]\n"
