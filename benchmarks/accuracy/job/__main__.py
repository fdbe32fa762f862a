"""``python -m benchmarks.accuracy.job``: what the answers about whole jobs are worth, as a page.

Every number on docs/accuracy-job.md comes from here: each section is a function that reads what was
recorded under ``traces/job`` and returns lines of Markdown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.accuracy.job.batch_schedule import regimes_section
from benchmarks.accuracy.job.convergence import convergence_section
from benchmarks.accuracy.job.loading import loading_section
from benchmarks.accuracy.job.provisioning import plan_section
from benchmarks.accuracy.job.runtime import runtime_section
from benchmarks.accuracy.job.scaling import speed_section
from benchmarks.accuracy.job.simulated_schedules import schedules_section
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "traces" / "job"
PAGE = ROOT / "docs" / "accuracy-job.md"
SECTIONS: Sequence[Callable[[Path], list[str]]] = (
    runtime_section,
    convergence_section,
    speed_section,
    plan_section,
    regimes_section,
    schedules_section,
    loading_section,
)
"""Functions from the folder of recordings to lines of Markdown, in the order of the page."""
HEAD = (
    "# How far off answers about whole jobs are",
    "",
    "`python -m benchmarks.accuracy.job` generates this page from what lies under `traces/job`.",
    "",
)


def page(recorded: Path) -> str:
    """Return the page."""
    lines = [*HEAD, *(line for section in SECTIONS for line in (*section(recorded), ""))]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Rewrite the page of this checkout."""
    write_atomically(PAGE, page(RECORDED).encode())
    sys.stdout.write(f"wrote {PAGE.name}\n")


if __name__ == "__main__":
    main()
