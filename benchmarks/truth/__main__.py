"""``python -m benchmarks.truth --out FOLDER [--minutes N]``: a wide truth set on this machine.

Measures every job of ``jobs.tsv`` under every change that applies, in plain processes; records and
calibrates it; predicts; writes ``FOLDER/truth.parquet`` and prints the figures. The same command
goes on where it was ended. Held-out architectures are measured but not predicted, unless --look,
which notes the date in ``looks.tsv``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.truth.campaign import STAGES, forget, measure, touch_memory
from benchmarks.truth.looks import LOOKS, note_look
from benchmarks.truth.plain_plan import seconds_of
from benchmarks.truth.predictions import make_table
from benchmarks.truth.score import as_text, score
from benchmarks.truth.spec import LIST, read_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.truth.spec import DrawnJob

TABLE = "truth.parquet"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, predict and score; exit code 3 where the time was over before all was measured."""
    asked = _parser().parse_args(arguments)
    jobs = chosen(read_jobs(asked.list), asked.jobs)
    folder: Path = asked.out
    left = [job for job in jobs if not (folder / job.name / "plain.2.json").exists()]
    architectures = len({job.architecture for job in jobs})
    _say(
        f"{len(jobs)} jobs of {architectures} architectures, "
        f"{sum(len(job.changes) for job in jobs)} what-ifs; {len(left)} jobs are to be measured, "
        f"about {sum(map(seconds_of, left)) / 60:.0f} min on a quiet machine"
    )
    if asked.estimate:
        return 0
    for stage in asked.again:
        forget(jobs, folder, stage)
    if left and not asked.predict_only:
        touch_memory()
    is_whole = asked.predict_only or measure(
        jobs, folder, deadline=time.time() + 60 * asked.minutes, say=_say
    )
    if asked.look:
        note_look(LOOKS, folder, asked.look)
    table = make_table(jobs, folder, look=bool(asked.look), say=_say)
    if table.empty:
        return 3
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / TABLE)
    scored = as_text(score(table))
    (folder / "score.md").write_text(scored, "utf-8")
    sys.stdout.write(f"{scored}wrote {folder / TABLE}\n")
    return 0 if is_whole else 3


def chosen(jobs: Sequence[DrawnJob], names: Sequence[str]) -> list[DrawnJob]:
    """Return the jobs called *names*, or all, families in turns: an early end has some of each."""
    if unknown := set(names) - {job.name for job in jobs}:
        raise SystemExit(f"no job is called {', '.join(sorted(unknown))}: see {LIST}")
    wanted = [job for job in jobs if job.name in names or not names]
    counts: dict[str, int] = {}
    places = {}
    for job in wanted:
        total = sum(each.family == job.family for each in wanted)
        places[job.name] = (counts.get(job.family, 0) + 0.5) / total
        counts[job.family] = counts.get(job.family, 0) + 1
    return sorted(wanted, key=lambda job: (places[job.name], job.name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=180.0, help="then end (default 180)")
    parser.add_argument("--jobs", nargs="*", default=[], help="names of some jobs; default: all")
    parser.add_argument("--list", type=Path, default=LIST, help="another list of jobs")
    parser.add_argument(
        "--again", nargs="*", default=[], choices=STAGES, help="make these results anew"
    )
    parser.add_argument("--estimate", action="store_true", help="say how long it takes, and end")
    parser.add_argument("--predict-only", action="store_true", help="measure nothing")
    parser.add_argument(
        "--look", metavar="WHY", help="predict the held-out jobs, too, and note it in looks.tsv"
    )
    return parser


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
