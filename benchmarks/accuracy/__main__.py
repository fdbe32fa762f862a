"""``python -m benchmarks.accuracy``: run the study, write its pages and what the package learns.

Every number on docs/how-far-off.md, docs/accuracy.md and docs/accuracy-distributed.md comes from
here, and so does every validated error and the width of every interval in the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.distributed.page import distributed_page
from benchmarks.accuracy.distributed.study import run_distributed, validating_pairs
from benchmarks.accuracy.drawn_jobs import read_table
from benchmarks.accuracy.error_table import error_table
from benchmarks.accuracy.intervals.how_far_off import how_far_off
from benchmarks.accuracy.intervals.interval_coverage import judge, leave_out
from benchmarks.accuracy.intervals.observations import observe_pairs, read_truth
from benchmarks.accuracy.intervals.scale_fit import fit_scales
from benchmarks.accuracy.page import judged, page
from benchmarks.accuracy.plot import draw_accuracy
from benchmarks.accuracy.published.page import published_page
from benchmarks.accuracy.published.study import run_published
from benchmarks.accuracy.study import read_list, run_study
from foretrace.analysis.evidence.validated_errors import HARDWARE, TABLE
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.accuracy.distributed.study import Distributed
    from benchmarks.accuracy.error_table import Table
    from benchmarks.accuracy.intervals.interval_coverage import Judged
    from foretrace.analysis.error.error_scale import ErrorScale

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "traces" / "study.toml"
PAGE = ROOT / "docs" / "accuracy.md"
SHORT = ROOT / "docs" / "how-far-off.md"
TRUTH = ROOT / "traces" / "truth" / "truth.parquet"
PICTURE = ROOT / "docs" / "images" / "accuracy.svg"
PUBLISHED = ROOT / "docs" / "accuracy-published.md"
DISTRIBUTED = ROOT / "docs" / "accuracy-distributed.md"
README = ROOT / "README.md"
ERRORS = ROOT / "foretrace" / "analysis" / "evidence" / TABLE
BEGIN, END = "<!-- accuracy: written by `make accuracy` -->", "<!-- end -->"


def main() -> None:
    """Run the study of this checkout and rewrite its pages and table."""
    listed = read_list(STUDY)
    study = run_study(listed, STUDY.parent)
    distributed = run_distributed(listed, STUDY.parent)
    truths = read_truth(TRUTH)
    observations = [*observe_pairs(study.pairs), *truths]
    scales = fit_scales(observations)
    cells = judge_cells(distributed, scales)
    table = join_tables(
        error_table(study.pairs, truths), error_table(validating_pairs(distributed))
    )
    table["interval"] = {on: scale.as_table() for on, scale in scales.items()}
    drawn = read_table(TRUTH)
    text = page(study, table, listed["held_out_looks"], observations, drawn)
    write_atomically(ERRORS, toml(table).encode())
    write_atomically(PAGE, text.encode())
    write_atomically(SHORT, how_far_off([*leave_out(observations), *cells]).encode())
    draw_accuracy(judged(study.pairs), PICTURE)
    write_atomically(DISTRIBUTED, distributed_page(distributed, cells).encode())
    write_atomically(README, quote(README.read_text("utf-8"), text).encode())
    write_published(ROOT / listed["published"], ROOT / listed["shared"])
    sys.stdout.write(
        f"wrote {SHORT.name}, {PAGE.name}, {DISTRIBUTED.name} and {TABLE}: "
        f"{len(study.pairs)} pairs, {len(distributed.cells)} cells\n"
    )


def judge_cells(study: Distributed, scales: Mapping[str, ErrorScale]) -> list[Judged]:
    """Judge jobs of several workers by *scales*, in which there is none of them."""
    return [
        judged
        for each in observe_pairs(validating_pairs(study))
        if each.on in scales
        for judged in judge([each], scales[each.on])
    ]


def write_published(table: Path, traces: Path) -> None:
    """Rewrite the page of published measurements, or say why it stays as it is."""
    if not (table.is_file() and traces.is_dir()):
        sys.stdout.write(f"left {PUBLISHED.name} alone: no {table} or no {traces} here\n")
        return
    write_atomically(PUBLISHED, published_page(run_published(table, traces)).encode())
    sys.stdout.write(f"wrote {PUBLISHED.name}\n")


def join_tables(table: Table, more: Table) -> Table:
    """Return *table* with the what-ifs that only *more* tested.

    What an untested one may miss stays as *table* says.

    >>> one = {"cpu": {"rule": {"amp": 1}}, "gpu": {}, "unvalidated": {"missed": 9}}
    >>> more = {"cpu": {"rule": {"amp": 2, "ddp": 3}}, "gpu": {}, "unvalidated": {"missed": 8}}
    >>> join_tables(one, more)
    {'cpu': {'rule': {'amp': 1, 'ddp': 3}}, 'gpu': {}, 'unvalidated': {'missed': 9}}
    """
    both = dict(table)
    for hardware in HARDWARE:
        sources = dict(table[hardware])
        for source, tested in more[hardware].items():
            sources[source] = {**tested, **sources.get(source, {})}
        both[hardware] = {
            source: dict(sorted(merged.items())) for source, merged in sources.items()
        }
    evidence = {**more.get("evidence", {}), **table.get("evidence", {})}
    return {**both, "evidence": dict(sorted(evidence.items()))} if evidence else both


def quote(readme: str, accuracy: str) -> str:
    """Return *readme* with the medians of the page *accuracy* between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    heads = ("Median |error| over", "- CPU", "- GPU")
    said = [line for line in accuracy.splitlines() if line.startswith(heads)]
    sentences = "\n".join(f"- {line.removeprefix('- ')}" for line in said)
    return f"{before}{BEGIN}\n{sentences}\n{END}{after}"


def toml(table: Mapping[str, Any]) -> str:
    """Write *table* as TOML."""
    head = "# Written by `python -m benchmarks.accuracy`; docs/accuracy.md shows the pairs."
    return "\n".join([head, *_toml_lines(table, ())]) + "\n"


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield a heading and the plain values of *table*, then the tables inside it.

    >>> list(_toml_lines({"a": {"b": 1, "c": {"d": "x"}, "e": [{"f": 2}]}}, ()))
    ['', '[a]', 'b = 1', '', '[a.c]', "d = 'x'", '', '[[a.e]]', 'f = 2']
    """
    plain = {key: value for key, value in table.items() if not _holds_tables(value)}
    if plain:
        yield from ("", f"[{'.'.join(path)}]", *_toml_values(plain))
    for key in (key for key in table if key not in plain):
        if isinstance(table[key], dict):
            yield from _toml_lines(table[key], (*path, key))
            continue
        for row in table[key]:
            yield from ("", f"[[{'.'.join((*path, key))}]]", *_toml_values(row))


def _toml_values(row: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key} = {value!r}" for key, value in row.items())


def _holds_tables(value: Any) -> bool:
    """Tell whether *value* is a table, or a list of them."""
    return isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict))


if __name__ == "__main__":
    main()
