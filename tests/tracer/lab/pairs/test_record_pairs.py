"""Recording pairs: really measured here, on a CPU, with few steps of a small model."""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError, TraceError
from foretrace.tracer.lab.pairs import campaign
from foretrace.tracer.lab.pairs.archive import compress, pack
from foretrace.tracer.lab.pairs.read_archive import read_pairs
from foretrace.tracer.lab.pairs.record_pairs import record_pairs
from foretrace.tracer.lab.pairs.worker import Bench, PairPlan, Task, run
from foretrace.tracer.lab.zoo.models import BY_NAME as MODELS
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES
from foretrace.tracer.lab.zoo.variants import Variant
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")

TINY = PairPlan(
    rounds=2,
    block=1,
    slow_block=2,
    warmup=2,
    window=2,
    calibration_seconds=0.2,
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Record one pair of one model and try one that this CPU may not be able to run."""
    out = tmp_path_factory.mktemp("pairs")
    found = record_pairs(["dlrm"], ["fused", "loader_1"], minutes=10, cpu=True, out=out, plan=TINY)
    return out, found


def test_pairs_are_packed_with_a_card(recorded: Any) -> None:
    """One archive of at most 16 MiB, a card for people and one for programs, nothing else."""
    out, found = recorded
    assert found.left_out == ()
    assert sorted(p.name for p in out.iterdir()) == [
        "dlrm-cpu.json",
        "dlrm-cpu.md",
        "pairs-cpu-1.tar",
    ]
    assert found.archives[0].stat().st_size <= 16 << 20
    card = json.loads((out / "dlrm-cpu.json").read_text())
    assert [row["change"] for row in card["pairs"]] == ["fused", "loader_1"]
    assert [row["calibrated"] for row in card["pairs"]] == [True, True]
    assert "foretrace record-pairs --cpu" in (out / "dlrm-cpu.md").read_text()


def test_pairs_read_back_whole(recorded: Any) -> None:
    """Both recordings, both times, the noise and the what-if are there."""
    out, _ = recorded
    for where in (out, out / "pairs-cpu-1.tar"):
        fused, loader = read_pairs(where)
        assert (fused.name, fused.scenario) == (
            "cpu/dlrm/fused",
            'fused_optimizer(kind="fused")',
        )
        assert (fused.model, fused.change) == ("dlrm", "fused")
        assert fused.before.meta.optimizer["kind"] == "loop"  # type: ignore[index]
        assert fused.after.meta.optimizer["kind"] == "fused"  # type: ignore[index]
        assert fused.before.meta.machine["cores"] == 1  # type: ignore[index]
        assert min(fused.before_ns, fused.after_ns) > 0
        assert fused.noise >= 0
        assert len(fused.before.events) > len(fused.after.events)
        assert loader.after.meta.loader["workers"] == 1  # type: ignore[index]
        assert fused.calibration.startswith(b"PAR1")  # type: ignore[union-attr]
        assert loader.calibration.startswith(b"PAR1")  # type: ignore[union-attr]


def test_unpacked_pairs_read_as_well(recorded: Any, tmp_path: Path) -> None:
    """A folder into which an archive was unpacked serves too."""
    with tarfile.open(recorded[0] / "pairs-cpu-1.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    assert [pair.change for pair in read_pairs(tmp_path)] == ["fused", "loader_1"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Measure as the real processes do; two threads on a busy machine wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_bench_keeps_the_side_that_comes_before(tmp_path: Path) -> None:
    """Two changes from the same start share its recording; its times are measured anew."""
    bench = Bench(MODELS["dlrm"], tmp_path, TINY, cpu=True)
    first = bench.measure(CHANGES["foreach"])
    second = bench.measure(CHANGES["batch_x2"])
    assert first["before"]["trace"] == second["before"]["trace"] == "foreach.before.json"
    assert second["scenario"] == "batch_size(n=1024)"
    assert first["before"]["step_ns"] != second["before"]["step_ns"]


@pytest.mark.usefixtures("one_thread")
def test_one_task_measures_all_its_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change that cannot be built is written down, and the next one is measured."""
    if torch.cuda.is_available():
        pytest.skip("a GPU here can capture graphs")
    run(Task("dlrm", ["cuda_graphs", "fused"], True, str(tmp_path), 1e12, TINY))
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("dlrm cuda_graphs: ")
    assert told[1].startswith("dlrm fused: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cuda_graphs.failed.json",
        "fused.after.json",
        "fused.before.json",
        "fused.calibration.parquet",
        "fused.pair.json",
    ]


@pytest.mark.usefixtures("one_thread")
def test_loading_takes_a_good_part_of_the_step(tmp_path: Path) -> None:
    """The loader of a pair is made for the model: measured once, four fifths of its step."""
    bench = Bench(MODELS["dlrm"], tmp_path, TINY, cpu=True)
    first = bench._with_loader(Variant(optimizer="loop", workers=0))
    second = bench._with_loader(Variant(optimizer="loop", workers=2))
    assert first.load_ns > 0
    assert second.load_ns == first.load_ns


def test_a_task_stops_at_its_deadline(tmp_path: Path) -> None:
    """Nothing is begun when the time is over."""
    run(Task("dlrm", ["fused"], True, str(tmp_path), time.time() - 1, TINY))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((["resnet"], None), "no model is called 'resnet': choose from resnet50, vgg19"),
        ((None, ["amp"]), "no variant is called 'amp': choose from fused, amp_bf16"),
    ],
)
def test_unknown_names_are_refused(arguments: Any, text: str, tmp_path: Path) -> None:
    """The text lists what there is."""
    with pytest.raises(RecordError, match=text):
        record_pairs(*arguments, cpu=True, out=tmp_path)


def test_without_a_gpu_the_text_says_what_to_add(tmp_path: Path) -> None:
    """Full shapes are for a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(RecordError, match="add --cpu"):
        record_pairs(out=tmp_path)


def test_no_time_leaves_everything_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A budget that is over at once is no error; what was left out is said."""
    found = record_pairs(["dlrm"], ["fused"], minutes=0, cpu=True, out=tmp_path)
    assert found.left_out == ("dlrm fused: no time left",)
    assert "left out: dlrm fused: no time left" in capsys.readouterr().err


def test_an_interrupt_keeps_what_there_is(tmp_path: Path) -> None:
    """SIGTERM ends the measuring, and the pair that was complete is packed."""
    script = (
        "from foretrace.tracer.lab.pairs.record_pairs import record_pairs\n"
        "from foretrace.tracer.lab.pairs.worker import PairPlan\n"
        f"plan = PairPlan(**{asdict(TINY)!r})\n"
        f"record_pairs(['dlrm'], ['fused', 'batch_x2', 'no_item', 'foreach', 'accumulate_2'],"
        f" minutes=5, cpu=True, out={str(tmp_path)!r}, plan=plan)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stderr is not None
        assert "dlrm fused" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
        assert process.wait() == 0
    assert "stopped: packing what there is" in told
    assert "left out: dlrm accumulate_2: no time left" in told
    assert "fused" in [pair.change for pair in read_pairs(tmp_path)]


def test_an_interrupt_ends_the_process_that_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both signals stop the run, and handlers are as before afterwards."""
    kept = signal.getsignal(signal.SIGTERM)
    task = Task("dlrm", ["fused"], True, str(tmp_path / "dlrm"), time.time() + 60, TINY)
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM])
    timer.start()
    assert campaign.run_all([task]) == ["dlrm fused: no time left"]
    timer.join()
    assert signal.getsignal(signal.SIGTERM) is kept
    assert "stopped: packing what there is" in capsys.readouterr().err


def test_a_process_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a moment to end by itself."""
    monkeypatch.setattr(campaign, "GRACE_SECONDS", 0.1)
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        campaign._end(process)
        assert process.wait() == -signal.SIGKILL
    campaign._end(process)


def test_a_thread_cannot_catch_signals_but_can_record(tmp_path: Path) -> None:
    """Outside the main thread an interrupt is the caller's affair."""
    task = Task("dlrm", ["fused"], True, str(tmp_path), time.time() - 1, TINY)
    left_out: list[str] = []
    thread = threading.Thread(target=lambda: left_out.extend(campaign.run_all([task])))
    thread.start()
    thread.join()
    assert left_out == ["dlrm fused: no time left"]


def test_a_process_that_dies_leaves_its_reason(tmp_path: Path) -> None:
    """The last line of its errors is the reason for all that it had still to do."""
    task = Task("no_such_model", ["fused"], True, str(tmp_path / "m"), time.time() + 60, TINY)
    (said,) = campaign.run_all([task])
    assert said.startswith("no_such_model fused: foretrace.errors.RecordError: no model is called")


def test_a_recording_machine_needs_torch_alone() -> None:
    """What analyses traces may be absent where pairs are recorded."""
    script = (
        "import sys, foretrace.tracer.lab.pairs.record_pairs, foretrace.tracer.lab.pairs.worker\n"
        "heavy = {'torch', 'pandas', 'pyarrow', 'msgspec', 'numba', 'networkx', 'typer', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert told.stdout == "[]\n"


def fake_pair(folder: Path, model: str, change: str, size: int) -> None:
    """Write a pair whose two recordings have *size* incompressible bytes each."""
    (folder / model).mkdir(parents=True, exist_ok=True)
    for side in ("before", "after"):
        (folder / model / f"{change}.{side}.json.xz").write_bytes(os.urandom(size))
    content = {side: {"trace": f"{change}.{side}.json"} for side in ("before", "after")}
    (folder / model / f"{change}.pair.json").write_text(json.dumps(content))


def test_packing_splits_and_says_what_has_no_room(tmp_path: Path) -> None:
    """Archives stay below the limit; a pair that fits nowhere is named."""
    for change in ("a", "b", "c", "d"):
        fake_pair(tmp_path / "work", "m", change, 40_000)
    fake_pair(tmp_path / "work", "m", "huge", 90_000)
    limit = 150_000
    paths, left_out = pack(tmp_path / "work", tmp_path, "pairs", limit=limit, archives=3)
    assert [path.name for path in paths] == ["pairs-1.tar", "pairs-2.tar", "pairs-3.tar"]
    assert max(path.stat().st_size for path in paths) <= limit
    assert left_out == ["m d: no room left", "m huge: no room left"]


def test_compressing_replaces_the_file(tmp_path: Path) -> None:
    """The content stays, the plain file goes."""
    (tmp_path / "a.json").write_bytes(b"content")
    packed = compress(tmp_path / "a.json")
    assert lzma.decompress(packed.read_bytes()) == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json.xz"]


SIDE_X = {"trace": "x", "facts": {}, "mean_ns": 1}
PAIR_OF_X = json.dumps(
    {"device": "cpu", "model": "m", "change": "a", "scenario": "amp", "noise": 0}
    | {"before": SIDE_X, "after": SIDE_X}
).encode()


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "holds no pair"),
        ({"m/a.pair.json": b"{"}, "m/a.pair.json is broken: Input data was truncated"),
        ({"m/a.pair.json": b"[]"}, "m/a.pair.json is broken: Expected `object`, got `array`"),
        (
            {"m/a.pair.json": b'{"before": {}}'},
            "m/a.pair.json is broken: Object missing required field",
        ),
        (
            {"m/a.pair.json": PAIR_OF_X},
            "names m/x.xz, which is not there",
        ),
        (
            {
                "m/a.pair.json": PAIR_OF_X,
                "m/x.xz": b"junk",
            },
            "m/x.xz is broken",
        ),
    ],
)
def test_a_broken_archive_is_one_clear_line(
    files: dict[str, bytes], text: str, tmp_path: Path
) -> None:
    """The text names the archive, the member and what is wrong."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with tarfile.open(tmp_path / "pairs.tar", "w") as archive:
        for name in files:
            archive.add(tmp_path / name, name)
    with pytest.raises(TraceError, match=r"pairs\.tar") as caught:
        read_pairs(tmp_path / "pairs.tar")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    """A missing file and a file of another kind."""
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(TraceError, match=r"absent.tar does not exist"):
        read_pairs(tmp_path / "absent.tar")
    with pytest.raises(TraceError, match="is no archive of record-pairs"):
        read_pairs(tmp_path / "notes.txt")
