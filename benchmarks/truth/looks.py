"""The log of looks at held-out predictions: a line for each time that they were made."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

LOOKS = Path(__file__).with_name("looks.tsv")


def note_look(log: Path, folder: Path, why: str) -> None:
    """Write down that held-out predictions were looked at, when, and at which commit."""
    git = ["git", "-C", str(log.parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    is_new = not log.exists()
    with log.open("a", encoding="utf-8") as lines:
        if is_new:
            lines.write("date\tcommit\tfolder\twhy\n")
        lines.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC\t{commit}\t{folder.name}\t{why}\n")


def count_looks(log: Path = LOOKS) -> int:
    """Return how many times held-out predictions were made, by the log of looks."""
    return max(len(log.read_text("utf-8").splitlines()) - 1, 0) if log.is_file() else 0
