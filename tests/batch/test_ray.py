"""A batch on a real Ray cluster of this machine, where Ray is installed: two worker processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from foretrace.batch import pool as batch_pool
from foretrace.batch.pool import open_workers
from foretrace.batch.run import run_batch
from foretrace.errors import TransformError
from tests.support.measured.studies import FASTER, NOTHING, write_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("joblib", reason="the optional extra batch is not installed")
pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray itself

START = ("-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2")
DEADLY = "import os, signal\ndef deadly(graph):\n    os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a cluster, and end it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, *START, f"--port={port}", "--include-dashboard=false"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as cluster:
        while not answers(port):
            assert cluster.poll() is None, "the cluster did not start"
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
        cluster.terminate()


def answers(port: int) -> bool:
    """Tell whether somebody listens there."""
    with closing(socket.socket()) as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def test_a_ray_cluster_gives_the_same_table(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against this process alone, also where a portion is smaller than the study."""
    study = write_study(tmp_path, [FASTER, "remove_sync", NOTHING])
    monkeypatch.setattr(batch_pool, "PORTION", 1)
    run_batch(study, tmp_path / "ray", backend="ray", address=address)
    run_batch(study, tmp_path / "here", jobs=1)

    tables = [(tmp_path / name / "results.parquet").read_bytes() for name in ("ray", "here")]
    assert tables[0] == tables[1]


def test_a_worker_that_dies_is_one_failed_row(tmp_path: Path, address: str) -> None:
    """As on this machine alone."""
    (tmp_path / "deadly.py").write_text(DEADLY, "utf-8")
    study = write_study(tmp_path, [FASTER, f"{tmp_path / 'deadly.py'}:deadly"], ("a",))
    fine, dead = run_batch(study, tmp_path / "out", backend="ray", address=address).rows

    assert fine.error is None
    assert str(dead.error).startswith("its worker died: ActorDiedError")


@pytest.mark.parametrize("nowhere", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere://x"])
def test_a_cluster_that_does_not_answer_is_one_line(nowhere: str) -> None:
    """At once, though Ray itself would try for minutes."""
    with (
        pytest.raises(TransformError, match=f"no Ray cluster answers at {nowhere}"),
        open_workers("ray", nowhere),
    ):
        pass
