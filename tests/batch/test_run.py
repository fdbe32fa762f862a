"""Batches: every item a row, whatever happens, and what is known is not done again."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.analysis.prediction import predict
from foretrace.batch import worker as batch_worker
from foretrace.batch.config import read_study
from foretrace.batch.items import list_items
from foretrace.batch.rows import item_path, read_rows
from foretrace.batch.run import run_batch
from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.scenario import parse_scenario
from tests.support.measured.studies import FASTER, NOTHING, write_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("joblib", reason="the optional extra batch is not installed")


def test_every_job_is_asked_every_what_if(tmp_path: Path) -> None:
    """Rows are in the order of the study and say what `predict` says."""
    study = write_study(tmp_path, [FASTER, NOTHING])
    found = run_batch(study, tmp_path / "out", jobs=1)
    alone = predict(build(load(tmp_path / "a.json")), parse_scenario([FASTER]))

    assert [(row.recording, row.scenario) for row in found.rows] == [
        ("a", FASTER),
        ("a", NOTHING),
        ("b", FASTER),
        ("b", NOTHING),
    ]
    assert found.rows[0].predicted_ns == alone.predicted_ns
    assert (found.rows[0].low_ns, found.rows[0].high_ns) == alone.interval_ns
    assert found.rows[0].error is None
    assert "no such kernel" in str(found.rows[1].error)
    assert found.rows[1].is_final
    assert tuple(read_rows(tmp_path / "out")) == found.rows


def test_what_is_known_is_not_predicted_again(tmp_path: Path, monkeypatch: Any) -> None:
    """A second run opens no recording; a new scenario is the only work of a third."""
    first = run_batch(write_study(tmp_path, [FASTER]), tmp_path / "out", jobs=1)
    monkeypatch.setattr(batch_worker, "open_recording", None)
    second = run_batch(tmp_path / "study.toml", tmp_path / "out", jobs=1)
    monkeypatch.undo()
    more = run_batch(write_study(tmp_path, [FASTER, NOTHING]), tmp_path / "out", jobs=1)

    assert (first.known, second.known, more.known) == (0, 2, 2)
    assert second.rows == first.rows
    assert len(more.rows) == 4


def test_a_changed_recording_is_predicted_anew(tmp_path: Path) -> None:
    """The content counts, not the name."""
    study = write_study(tmp_path, [FASTER])
    run_batch(study, tmp_path / "out", jobs=1)
    changed = (tmp_path / "a.json").read_text("utf-8").replace("sgemm", "hgemm")
    (tmp_path / "a.json").write_text(changed, "utf-8")

    assert run_batch(study, tmp_path / "out", jobs=1).known == 1


@pytest.mark.slow
def test_a_worker_that_dies_is_one_failed_row(tmp_path: Path) -> None:
    """The what-if that kills its process is found, the other items are as in a study without it."""
    (tmp_path / "deadly.py").write_text(
        "import os, signal\ndef deadly(graph):\n    os.kill(os.getpid(), signal.SIGKILL)\n", "utf-8"
    )
    deadly = f"{tmp_path / 'deadly.py'}:deadly"
    others = [FASTER, NOTHING, "remove_sync"]
    study = write_study(tmp_path, [*others, deadly], ("a",))
    *rows, dead = run_batch(study, tmp_path / "out", jobs=2).rows
    alone = run_batch(write_study(tmp_path, others, ("a",)), tmp_path / "alone", jobs=1)

    assert rows == list(alone.rows)
    assert str(dead.error).startswith("its worker died: TerminatedWorkerError")
    assert not dead.is_final


def test_a_full_disk_is_one_failed_row(tmp_path: Path) -> None:
    """The result that cannot be kept is a failed row; the next run predicts it again."""
    study = write_study(tmp_path, [FASTER])
    first = list_items(read_study(study), tmp_path)[0]
    path = item_path(tmp_path / "out", first.key)
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    found = run_batch(study, tmp_path / "out", jobs=1)
    path.unlink()
    again = run_batch(study, tmp_path / "out", jobs=1)

    assert found.unwritten == 1
    assert str(found.rows[0].error).endswith("No space left on device")
    assert found.rows[0].predicted_ns is None
    assert found.rows[1].error is None
    assert (again.known, again.unwritten, again.rows[0].error) == (1, 0, None)


def test_a_disk_that_runs_full_keeps_what_fitted(tmp_path: Path) -> None:
    """Some rows fit, the table does not; with room again the rest is predicted."""
    study = write_study(tmp_path, [f"faster_host(speedup={n})" for n in range(2, 8)])
    whole = run_batch(study, tmp_path / "whole", jobs=1)
    with small_disk(tmp_path / "disk", kib=64) as out:
        with pytest.raises(OSError, match="No space left on device"):
            run_batch(study, out, jobs=1)
        subprocess.run(["mount", "-o", "remount,size=1m", str(out)], check=True)
        resumed = run_batch(study, out, jobs=1)

    assert 0 < resumed.known < len(whole.rows)
    assert (resumed.unwritten, resumed.rows) == (0, whole.rows)


@contextmanager
def small_disk(folder: Path, *, kib: int) -> Iterator[Path]:
    """Mount a disk of *kib* KiB at *folder*, or skip the test, saying why."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={kib}k", "foretrace-test", str(folder)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no small disk here: {getattr(error, 'stderr', None) or error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_recording_that_vanishes_is_a_failed_row(tmp_path: Path) -> None:
    """Gone while the batch runs: its item fails, and is tried again when it is back."""
    (tmp_path / "thief.py").write_text(
        "from pathlib import Path\n"
        "def thief(graph, *, path: str):\n"
        "    Path(path).unlink(missing_ok=True)\n"
        "    return graph\n",
        "utf-8",
    )
    stolen = tmp_path / "b.json"
    study = write_study(tmp_path, [f"{tmp_path / 'thief.py'}:thief(path='{stolen}')", FASTER])
    content = stolen.read_bytes()
    found = run_batch(study, tmp_path / "out", jobs=1)
    errors = [row.error for row in found.rows]

    assert errors == [None, None, *[f"{stolen}: there is no such file"] * 2]

    stolen.write_bytes(content)
    write_study(tmp_path, [FASTER])
    assert [r.error for r in run_batch(study, tmp_path / "out", jobs=1).rows] == [None, None]


def test_a_recording_that_was_never_there_is_a_failed_row(tmp_path: Path) -> None:
    """Its path is named, and the others are predicted."""
    study = write_study(tmp_path, [FASTER], ("a",))
    study.write_text(study.read_text("utf-8") + '[[trace]]\npath = "b.json"\n', "utf-8")
    rows = run_batch(study, tmp_path / "out", jobs=1).rows

    assert rows[0].error is None
    assert rows[1].error == f"{tmp_path / 'b.json'}: there is no such file"


def test_measured_pairs_carry_their_truth(tmp_path: Path) -> None:
    """A given step, and a recording after the change, stand beside the prediction."""
    study = write_study(tmp_path, [])
    study.write_text(
        f'[[pair]]\nbefore = "a.json"\nafter_ms = 0.8\nscenario = ["{FASTER}"]\nmodel = "small"\n'
        f'[[pair]]\nbefore = "a.json"\nafter = "b.json"\nscenario = "{FASTER}"\n',
        "utf-8",
    )
    given, recorded = run_batch(study, tmp_path / "out", jobs=1).rows

    assert (given.after_ns, given.model) == (0.8e6, "small")
    assert (recorded.after_ns, recorded.model) == (1e6, "a")
    assert given.paper_ns == given.predicted_ns  # the paper makes the host faster the same way


def test_an_address_goes_with_a_cluster(tmp_path: Path) -> None:
    """None for this machine, one for a cluster."""
    for backend, address in (("loky", "tcp://x:1"), ("dask", None)):
        with pytest.raises(TransformError, match="give an address"):
            run_batch(tmp_path / "study.toml", tmp_path, backend=backend, address=address)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask itself
def test_a_dask_cluster_gives_the_same_table(tmp_path: Path) -> None:
    """A scheduler and two worker processes, against this process alone."""
    distributed = pytest.importorskip("distributed")
    study = write_study(tmp_path, [FASTER, "remove_sync", NOTHING])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address
        run_batch(study, tmp_path / "dask", backend="dask", address=address)
    run_batch(study, tmp_path / "here", jobs=1)

    tables = [(tmp_path / name / "results.parquet").read_bytes() for name in ("dask", "here")]
    assert tables[0] == tables[1]
