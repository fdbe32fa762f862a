"""What the tool answers about every recording at hand, as text files to compare two states of code.

``python benchmarks/answers.py OUT`` in each of two checkouts, then ``diff -r``: a change of names
and places leaves every byte alone. Public recordings are asked where they lie beside the checkout.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import foretrace
from foretrace.analysis.advise import advise
from foretrace.analysis.summary import summarise
from foretrace.analysis.unchanged.identity import identity
from foretrace.report.forms import as_json
from foretrace.tracer.lab.pairs.read_archive import read_pairs
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foretrace import Trace

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ROOT.parent / "shared" / "gpu-traces"
NO_TRACES = {".md", ".csv", ".txt"}
WHAT_IFS: tuple[tuple[str, ...], ...] = (
    ("faster_kernels(speedup=3)",),
    ("faster_host(speedup=2)",),
    ("amp(dtype='bf16')",),
    ("fused_optimizer",),
    ("batch_size(n=64)",),
    ("gradient_accumulation(k=2)",),
    ("dataloader(workers=4)",),
    ("remove_sync",),
    ("ddp(workers=4, network='10Gbps')",),
    ("fsdp(workers=4, network='25Gbps')",),
    ("activation_checkpoint",),
    ("device(name='H100')",),
    ("fused_optimizer", "ddp(workers=8, network='100Gbps')"),
    ("p3(workers=4, network='10Gbps')",),
)


def main() -> None:
    """Write a file of answers for every recording into the folder named on the command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, read, measured in recordings():
        lines = "\n".join(answers(read, measured))
        write_atomically(out / f"{name.replace('/', '__')}.txt", f"{lines}\n".encode())
        sys.stdout.write(f"{name}\n")


def recordings() -> Iterator[tuple[str, Callable[[], Trace], tuple[str, bytes] | None]]:
    """Yield name, reader, and scenario and content of a calibration, of every recording."""
    for path in sorted(PUBLIC.rglob("*")):
        if path.is_file() and path.suffix not in NO_TRACES:
            yield path.relative_to(PUBLIC).as_posix(), partial(foretrace.load, path), None
    for archive in sorted((ROOT / "traces").glob("cpu-*.tar")):
        for pair in read_pairs(archive):
            name = f"{archive.stem}/{pair.name}".replace(" ", "_")
            measured = (pair.scenario, pair.calibration) if pair.calibration else None
            yield f"{name}.before", partial(getattr, pair, "before"), measured
            yield f"{name}.after", partial(getattr, pair, "after"), None


def answers(read: Callable[[], Trace], measured: tuple[str, bytes] | None) -> Iterator[str]:
    """Yield a line for each question about one recording: the JSON, or why it was refused."""
    try:
        trace = read()
        yield f"summary {answer(lambda: summarise(trace))}"
        graph = foretrace.build(trace)
    except foretrace.ForetraceError as error:
        yield json.dumps({"refused": str(error)})
        return
    yield f"replay {answer(lambda: identity(graph))}"
    yield f"advise {answer(lambda: advise(graph))}"
    for asked in WHAT_IFS:
        yield f"{list(asked)} {answer(partial(foretrace.predict, graph, asked))}"
    if measured:
        scenario, content = measured
        calibration = foretrace.read_calibration(content)
        yield f"calibrated {scenario} " + answer(
            lambda: foretrace.predict(graph, scenario, calibration)
        )


def answer(ask: Callable[[], object]) -> str:
    """Return the JSON of what *ask* gives, or of its refusal."""
    try:
        return as_json(ask()).strip()
    except foretrace.ForetraceError as error:
        return json.dumps({"refused": str(error)})


if __name__ == "__main__":
    main()
