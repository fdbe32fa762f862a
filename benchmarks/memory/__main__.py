"""``python -m benchmarks.memory``: measure the peaks of small jobs, and write the page on memory.

The public recordings lie in ``../shared`` beside the checkout; without them nothing is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.memory.jobs import measure_jobs
from benchmarks.memory.page import memory_page
from benchmarks.memory.public import read_public
from benchmarks.memory.published import ask_published
from foretrace.util.atomic_write import write_atomically

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
PAGE = ROOT / "docs" / "accuracy-memory.md"


def main() -> None:
    """Write the page."""
    traces, published = SHARED / "gpu-traces", SHARED / "reference" / "published-speedups.tsv"
    if not traces.exists() or not published.exists():
        sys.exit(f"the public recordings are not here: {SHARED}")
    public, batches = list(read_public(traces)), list(ask_published(published, traces))
    write_atomically(PAGE, memory_page(list(measure_jobs()), public, batches).encode())


if __name__ == "__main__":
    main()
