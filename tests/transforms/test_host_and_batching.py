"""Loader, synchronisation, batch size and accumulation: literal jobs, expected numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.analysis.null_models import paper
from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.batching.batch_size import batch_size
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.edit.provenance import warnings
from foretrace.transforms.host.dataloader import dataloader
from foretrace.transforms.host.remove_sync import remove_sync
from foretrace.transforms.registry import TRANSFORMS
from foretrace.transforms.scenario import apply, parse_scenario
from tests.support.jobs.simple import META, cpu_job, gpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MS = 1_000_000


def loading(load: int, compute: int, **meta: Any) -> Graph:
    """Build four steps of loading (ms) and computing (ms) on one thread."""
    tasks = [("next", "host", 0, load * MS, "load"), ("train", "host", 0, compute * MS, "forward")]
    return literal(
        tasks * 4,
        columns={"step": np.repeat(np.arange(4, dtype=np.int32), 2)},
        meta=replace(META, **meta),
        wrap=True,
        measured_step_ns=float((load + compute) * MS),
    )


@pytest.mark.parametrize(
    ("load", "compute", "workers", "step"),
    [(10, 20, 1, 22.5), (60, 20, 1, 60), (60, 20, 2, 30), (60, 20, 3, 22.5), (100, 20, 8, 22.5)],
)
def test_workers_load_while_the_job_computes(
    load: int, compute: int, workers: int, step: float
) -> None:
    """The longer of computing plus hand-over (2.5 ms) and loading divided by workers."""
    changed = check(dataloader(loading(load, compute), workers=workers))

    assert replay(changed).step_ns / MS == pytest.approx(step, rel=0.01)


@pytest.mark.parametrize(
    ("cores", "share", "taken"), [(1, 1.0, 12.5), (1, 0.5, 7.5), (4, 1.0, 2.5)]
)
def test_few_cores_are_shared(cores: int, share: float, taken: float) -> None:
    """On one core, workers save only what is no processor time."""
    graph = loading(10, 20, machine={"cores": cores, "threads": 1}, loader={"cpu_share": share})
    changed = dataloader(graph, workers=2)
    handover = changed.tasks[changed.tasks["name"].str.startswith("take")]

    assert handover["work_ns"].tolist() == [round(taken * MS)] * 4


def worker_job(**loader: Any) -> Graph:
    """Build two steps that wait for a recorded worker; the second batch was late."""
    return literal(
        [
            ("next", "host", 0, 5, None),
            ("train", "host", 0, 20 * MS, "forward"),
            ("next", "host", 0, 5, None),
            ("train", "host", 0, 20 * MS, "forward"),
            ("load", "load", 1, 80 * MS, "load"),
        ],
        [(4, 2, "data", 0)],
        columns={"step": [0, 0, 1, 1, 1]},
        meta=replace(META, loader=loader or None),
        wrap=True,
    )


def test_recorded_workers_scale() -> None:
    """80 ms of waiting per two steps with 2 workers: a batch takes 80 ms; 8 workers keep up."""
    changed = check(dataloader(worker_job(workers=2), workers=8))
    loads = changed.tasks[changed.tasks["kind"] == "load"]

    assert loads["work_ns"].tolist() == [80 * MS] * 2
    assert changed.meta.loader == {"workers": 8, "prefetch": 2}
    assert (changed.tasks["name"].str.startswith("take")).sum() == 0


def test_the_recorded_workers_cannot_be_overruled() -> None:
    """The recording counts them; without a count they have to be some."""
    with pytest.raises(
        TransformError, match=r"recorded_workers=4 contradicts this job \(workers: 2\)"
    ):
        dataloader(worker_job(workers=2), workers=8, recorded_workers=4)
    with pytest.raises(TransformError, match="recorded_workers=0 is out of range"):
        dataloader(worker_job(), workers=8, recorded_workers=0)


def test_loading_can_come_back_into_the_job() -> None:
    """With no workers each step loads its own batch."""
    changed = check(dataloader(worker_job(workers=2), workers=0))

    assert changed.tasks["work_ns"][changed.tasks["phase"] == "load"].tolist() == [80 * MS] * 2


@pytest.mark.parametrize(("workers", "loads", "main"), [(0, 0, 50), (1, 4, 2.5)])
def test_workers_that_keep_up_are_known_by_what_a_batch_costs(
    workers: int, loads: int, main: float
) -> None:
    """Handing over took 10 ms a step; the recorder saw that a batch alone takes 50."""
    job = loading(10, 20, loader={"workers": 4, "load_ns": 50 * MS, "cpu_share": 0.0})

    tasks = check(dataloader(job, workers=workers)).tasks
    on_main = (tasks["phase"] == "load") & (tasks["kind"] == "host")

    assert tasks["work_ns"][tasks["kind"] == "load"].tolist() == [50 * MS] * loads
    assert tasks["work_ns"][on_main].tolist() == [round(main * MS)] * 4


def test_a_loader_that_cannot_be_read_is_an_error() -> None:
    """Unknown workers, no loading at all, workers that keep up, or threads instead."""
    with pytest.raises(TransformError, match="give recorded_workers"):
        dataloader(worker_job(), workers=4)
    with pytest.raises(TransformError, match="no visible time on loading"):
        dataloader(gpu_job(load=0), workers=4)
    with pytest.raises(TransformError, match="the recorded workers keep up"):
        dataloader(loading(10, 20, loader={"workers": 4}), workers=8)
    graph = literal([("train", "host", 0, 9, None), ("RunCPU", "host", 1, 9, "load")])
    lanes = graph.lanes.assign(role=["main", "loader"]).astype({"role": "category"})
    with pytest.raises(TransformError, match="loads in threads of its own"):
        dataloader(replace(graph, lanes=lanes), workers=8)


def blocking_job(direction: str) -> Graph:
    """Build a blocking copy inside ``aten::item`` on a job with a loader thread that waits too."""
    return literal(
        [
            ("cudaMemcpyAsync", "launch", 0, 5, None),
            ("train", "host", 0, 9, None),
            (f"Memcpy {direction}", "memcpy", 1, 3, None),
            ("cudaStreamSynchronize", "sync", 2, 5, "load"),
        ],
        [(0, 2, "launch", 6)],
        columns={
            "wait": ["own", "none", "none", "stream"],
            "wait_lane": [-1, -1, -1, 1],
            "operator": [0, -1, -1, -1],
        },
        operators={"name": ["aten::item"], "parent": [-1]},
    )


def test_a_download_goes_with_its_call() -> None:
    """``.item()`` vanishes from host and device; another thread's waits stay."""
    graph = blocking_job("DtoH (Device -> Pageable)")
    lanes = graph.lanes.assign(role=["main", "compute", "loader"])
    graph = replace(graph, lanes=lanes.astype({"role": "category"}))
    changed = check(remove_sync(graph, pattern="item|Synchronize"))

    assert changed.tasks["name"].tolist() == ["train", "cudaStreamSynchronize"]


def test_an_upload_stays_but_no_longer_blocks() -> None:
    """As if the batch came from pinned memory."""
    changed = check(remove_sync(blocking_job("HtoD (Pageable -> Device)"), pattern="HtoD"))

    assert changed.tasks["wait"].tolist() == ["none", "none", "none", "stream"]


def test_on_a_cpu_nobody_waits() -> None:
    """An ``.item()`` there costs its own microsecond and no waiting."""
    graph = literal(
        [("aten::item", "host", 0, 800, "forward"), ("train", "host", 0, 9_000, "forward")],
        columns={"operator": [0, -1]},
        operators={"name": ["aten::item"], "parent": [-1]},
    )

    for job in (graph, cpu_job()):
        with pytest.raises(TransformError, match="nothing to change: this job runs on a CPU alone"):
            remove_sync(job)


def test_the_closest_names_are_those_of_calls_that_wait() -> None:
    """A call that matches and waits for nothing is no suggestion."""
    with pytest.raises(TransformError) as refused:
        remove_sync(blocking_job("DtoH (Device -> Pageable)"), pattern="train")

    assert str(refused.value) == (
        "nothing to change: no wait matching 'train' in this graph; "
        "closest names: cudaMemcpyAsync, cudaStreamSynchronize"
    )


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
    told = warnings(batch_size(kernel, n=128, recorded=recorded))

    assert bool(told) == is_doubted
    assert not told or told[0].startswith(
        f"batch_size: recorded={recorded} does not fit the recorded shapes, most of which begin"
    )


def test_one_sample_is_one_sample() -> None:
    """Said in the singular."""
    graph = replace(gpu_job(), meta=replace(gpu_job().meta, batch_size=None))

    assert (
        "batch_size: a step is 1 sample instead of 32" in batch_size(graph, n=1, recorded=32).notes
    )


def test_accumulation_is_k_batches_and_one_update() -> None:
    """3 x (load 50 + three operators 300) + 200 of update + two gradient additions of 1.875 us."""
    graph = cpu_job(steps=1)
    changed = check(gradient_accumulation(graph, k=3))

    assert replay(changed).step_ns == 3 * 350_000 + 200_000 + 2 * 1_875
    assert changed.meta.batch_size == 96


def test_accumulation_on_a_device_adds_by_kernels() -> None:
    """Each backward pass but the first ends with an addition and its launch."""
    changed = check(gradient_accumulation(gpu_job(steps=2), k=3))

    assert changed.tasks["name"].str.contains("accumulation .predicted. add").sum() == 4
    assert (changed.tasks["name"] == "gradient accumulation (predicted)").sum() == 4
    assert replay(changed).step_ns > 2.5 * replay(gpu_job(steps=2)).step_ns / 2


def test_what_little_follows_the_update_is_no_batch() -> None:
    """The end of the step's range stays with the update and is not repeated."""
    graph = literal(
        [("fwd", "host", 0, 90, "forward"), ("bwd", "host", 0, 90, "backward"),
         ("update", "host", 0, 9, "optimizer"), ("end", "host", 0, 5, None)]
    )  # fmt: skip
    changed = check(gradient_accumulation(graph, k=2))

    assert changed.tasks["name"].tolist() == ["fwd", "bwd", "update", "end", "fwd", "bwd"]
    assert "gradient_accumulation: adding gradients is not counted" in changed.notes


def test_what_starts_the_backward_pass_belongs_to_every_batch() -> None:
    """Gradients zeroed between forward and backward do not cut the seed of the backward off."""
    graph = literal(
        [("fwd", "host", 0, 90, "forward"), ("zero_grad", "host", 0, 9, "optimizer"),
         ("seed", "host", 0, 5, "forward"), ("bwd", "host", 1, 90, "backward")],
        [(2, 3, "fork", 1)],
    )  # fmt: skip
    changed = check(gradient_accumulation(graph, k=2))

    assert changed.tasks["name"].tolist() == [
        "fwd", "zero_grad", "seed", "bwd", "fwd", "seed", "bwd",
    ]  # fmt: skip


def test_accumulation_without_known_update_kernels_says_so() -> None:
    """An update that is no kernel leaves the additions uncounted."""
    graph = literal(
        [("bwd", "kernel", 0, 9, "backward"), ("copy", "memcpy", 0, 9, "optimizer")], meta=META
    )

    assert "adding gradients is not counted" in gradient_accumulation(graph, k=2).notes[0]


@pytest.mark.parametrize(
    ("text", "gpu", "cpu"),
    [
        ("amp", 33_333, 33_333),
        ("fused_optimizer", 100_000, 100_000),
        ("batch_size(n=64)", 200_000, 200_000),
        ("gradient_accumulation(k=2)", 100_000, 100_000),
        ("dataloader(workers=2)", 100_000, 100_000),
    ],
)
def test_the_paper_has_its_constants(text: str, gpu: int, cpu: int) -> None:
    """Work of the first product (a GEMM of 100 us) by the published rules."""
    for graph, work, name in ((gpu_job(), gpu, "s1688gemm"), (cpu_job(), cpu, "aten::addmm")):
        changed = check(apply(graph, paper(parse_scenario([text]))))
        product = changed.tasks[changed.tasks["name"].str.contains(name)]

        assert product["work_ns"].tolist()[0] == work


def test_the_paper_sums_what_is_fused() -> None:
    """Its fused update takes as long as the kernels it replaces."""
    gpu = apply(gpu_job(steps=1), paper(parse_scenario(["fused_optimizer"]))).tasks
    cpu = apply(cpu_job(steps=1), paper(parse_scenario(["fused_optimizer"]))).tasks

    assert gpu["work_ns"][gpu["name"] == "fused optimizer step (paper)"].tolist() == [200_000]
    assert cpu["work_ns"][cpu["name"] == "fused optimizer step (paper)"].tolist() == [200_000]


def test_the_paper_has_no_rule_for_everything() -> None:
    """A null model that does not exist is an error and not a number."""
    with pytest.raises(TransformError, match="the paper has no rule for"):
        paper([lambda graph: graph])
    with pytest.raises(TransformError, match="no task in the optimizer phase"):
        apply(
            literal([("a", "host", 0, 5, "forward")]),
            paper(parse_scenario(["fused_optimizer"])),
        )
    with pytest.raises(TransformError, match="give recorded"):
        apply(
            literal([("a", "host", 0, 5, "forward")]),
            paper(parse_scenario(["batch_size(n=2)"])),
        )


def test_the_registry_knows_every_what_if_by_its_name() -> None:
    """Names on the command line are the functions' own."""
    assert all(name == function.__name__ for name, function in TRANSFORMS.items())
