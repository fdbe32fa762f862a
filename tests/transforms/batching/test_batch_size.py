"""Another batch size: what grows, by how much, and what must be known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.build import build
from foretrace.graph.literal import literal
from foretrace.tracer.readers.load import load
from foretrace.tracer.readers.parquet import save
from foretrace.transforms.batching.batch_size import batch_size
from tests.support.jobs.simple import META, cpu_job, gpu_job
from tests.support.recordings.events import op, steps, trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "phase", "fill", "work"),
    [
        ("relu", "forward", np.nan, 198_000),
        ("relu", "forward", 8.0, 198_000),
        ("relu", "forward", 0.3, 100_000),
        ("relu", "forward", 1.5, 149_000 + 1_000),
        ("wgrad", "backward", 0.3, 198_000),
        ("ncclKernel", "backward", 8.0, 100_000),
        ("mul", "optimizer", 8.0, 100_000),
    ],
)
def test_kernels_grow_with_the_batch(name: str, phase: str, fill: float, work: int) -> None:
    """Twice the batch: linear above 2 us of latency, whole waves for small grids."""
    graph = literal(
        [(name, "kernel", 0, 100_000, phase), ("x", "kernel", 0, 2_000, "forward")],
        columns={"fill": [fill, 0.1]},
        meta=META,
    )
    changed = batch_size(graph, n=64)

    assert changed.tasks["work_ns"].tolist()[0] == pytest.approx(work, abs=1_001)
    assert changed.meta.batch_size == 64


def test_grids_grow_with_the_samples() -> None:
    """So that a move to another device finds them filled; gradients of weights loop inside."""
    graph = literal(
        [("relu", "kernel", 0, 9_000, "forward"), ("wgrad", "kernel", 0, 9_000, "backward")],
        columns={"fill": [0.3, 0.3], "blocks": [24, 24]},
        meta=META,
    )
    tasks = batch_size(graph, n=64).tasks

    assert tasks["blocks"].tolist() == [48, 24]
    assert tasks["fill"].tolist() == [0.6, 0.3]


def test_copies_and_loading_grow_too() -> None:
    """Uploads carry more samples; the loader makes more of them."""
    graph = literal(
        [
            ("next", "host", 0, 50_000, "load"),
            ("Memcpy HtoD", "memcpy", 1, 40_000, "forward"),
            ("relu", "kernel", 1, 2_000, "forward"),
        ],
        meta=META,
    )

    assert batch_size(graph, n=64).tasks["work_ns"].tolist()[:2] == [100_000, 78_000]


@pytest.mark.parametrize(
    ("shapes", "work"),
    [
        ("[[64],[32,128],[128,64]]", 4_000 + 96_000 * 2),
        ("[[128,64]]", 100_000),
        ("[[32,100],[100]]", 4_000 + round(96_000 * 6_500 / 3_300)),
        (None, 4_000 + 96_000 * 2),
        ("[[]]", 4_000 + 96_000 * 2),
        ("broken", 4_000 + 96_000 * 2),
    ],
)
def test_cpu_operators_grow_by_their_shapes(shapes: str | None, work: int) -> None:
    """Inputs that follow the batch grow, weights do not; unknown shapes grow in proportion."""
    job = cpu_job(steps=1)
    name = "aten::addmm" if shapes and shapes.count("[") == 4 else "aten::add"
    graph = literal(
        [(name, "host", 0, 100_000, "forward"), ("aten::add", "host", 0, 100_000, "forward")],
        columns={"operator": [0, -1]},
        operators={
            "name": [name, "aten::mul_"],
            "parent": [-1, -1],
            "shapes": [shapes, "[[64,128],[64]]"],
            "phase": ["forward", "optimizer"],
        },
        meta=job.meta,
    )

    assert batch_size(graph, n=64).tasks["work_ns"].tolist() == [work, 196_000]


def test_a_product_may_be_bound_by_its_weights() -> None:
    """One row against a wide matrix: twice the rows cost the same bytes of weights."""
    job = cpu_job(steps=1)
    graph = literal(
        [("aten::mm", "host", 0, 104_000, "forward")],
        columns={"operator": [0]},
        operators={"name": ["aten::mm"], "parent": [-1], "shapes": ["[[32,8],[8,4096]]"]},
        meta=replace(job.meta, machine={"fp32_gflops": 1e6, "copy_gbps": 1.0}),
    )
    grown = batch_size(graph, n=64).tasks["work_ns"].tolist()[0]

    assert grown == 4_000 + round(100_000 * (2 * 256 + 32_768) / (256 + 32_768))


def test_the_recorded_batch_must_be_known() -> None:
    """The trace or the user says it."""
    graph = literal([("relu", "kernel", 0, 9_000, "forward")])
    with pytest.raises(TransformError, match=r"give recorded=\.\.\., the samples"):
        batch_size(graph, n=64)
    with pytest.raises(TransformError, match="no kernel outside the optimizer"):
        batch_size(literal([("mul", "kernel", 0, 9, "optimizer")], meta=META), n=64)


def test_a_recorded_batch_that_is_not_the_recorded_one_is_refused() -> None:
    """The trace knows better; what it knows may be said all the same."""
    with pytest.raises(
        TransformError,
        match=r"recorded=16 contradicts this job \(samples per step: 32\); leave it out",
    ):
        batch_size(gpu_job(), n=64, recorded=16)
    with pytest.raises(TransformError, match="recorded=0 is out of range"):
        batch_size(gpu_job(), n=64, recorded=0)

    assert batch_size(gpu_job(), n=64, recorded=32).meta.batch_size == 64


@pytest.mark.parametrize(
    ("name", "shape", "recorded", "is_doubted"),
    [
        ("aten::conv2d", "[48,3,32,32]", 48, False),
        ("aten::conv2d", "[48,3,32,32]", 32, True),
        ("aten::mm", "[96,64]", 32, False),
        ("aten::mm", "[96,64]", 64, True),
        ("aten::matmul", "[20,32,64]", 32, False),
        ("aten::conv2d", "[48,3,32,32]", 1, False),
        ("aten::relu", "[48,3]", 32, False),
    ],
)
def test_shapes_speak_against_a_recorded_batch(
    name: str, shape: str, recorded: int, *, is_doubted: bool
) -> None:
    """Products work on multiples of it, along the first dimension, or the second of sequences."""
    graph = literal(
        [("aten::op", "host", 0, 100_000, "forward")],
        columns={"operator": [0]},
        operators={
            "name": [name],
            "parent": [-1],
            "shapes": [f"[{shape}]"],
            "phase": ["forward"],
        },
        meta=replace(META, batch_size=None),
    )
    kernel = literal(
        [("relu", "kernel", 0, 100_000, "forward")],
        operators={c: graph.operators[c] for c in ("name", "parent", "shapes", "phase")},
        meta=graph.meta,
    )
    told = batch_size(kernel, n=128, recorded=recorded).state.doubts

    assert bool(told) == is_doubted
    assert not told or told[0].text.startswith(
        f"batch_size: recorded={recorded} does not fit the recorded shapes, most of which begin"
    )


def test_one_sample_is_one_sample() -> None:
    """Said in the singular."""
    graph = replace(gpu_job(), meta=replace(gpu_job().meta, batch_size=None))

    assert (
        "batch_size: a step is 1 sample instead of 32" in batch_size(graph, n=1, recorded=32).notes
    )


def recorded_at(size: int, folder: Path, *, parameters: Any = None) -> str:
    """Write three steps of an operator, 100 us and 10 us per sample; return the file."""
    spent = 100 + 10 * size
    recording = trace(
        steps(3, spent, [op("aten::relu", 0, spent)]),
        devices=(),
        batch_size=size,
        extra={"parameters": parameters},
    )
    path = folder / f"{size}.parquet"
    save(recording, path)
    return str(path)


def test_two_recordings_beat_the_rule(tmp_path: Path) -> None:
    """On the line through 16 and 32 samples, 64 take 740 us and 8 take 180."""
    graph = build(load(recorded_at(32, tmp_path)))
    other = recorded_at(16, tmp_path)

    for samples, step_ns in ((64, 740_000), (8, 180_000)):
        changed = batch_size(graph, n=samples, other=other)
        assert changed.tasks["work_ns"].sum() / graph.steps == pytest.approx(step_ns, rel=0.001)
        assert changed.meta.batch_size == samples


def test_the_second_recording_is_of_the_same_job_and_another_size(tmp_path: Path) -> None:
    """The same size tells nothing, another network something else."""
    path = recorded_at(32, tmp_path)
    graph = build(load(path))
    with pytest.raises(TransformError, match="with another batch size than 32; it says 32"):
        batch_size(graph, n=64, other=path)
    with pytest.raises(TransformError, match="a recording of another job"):
        batch_size(graph, n=64, other=recorded_at(16, tmp_path, parameters=[["w", [2], 4]]))
