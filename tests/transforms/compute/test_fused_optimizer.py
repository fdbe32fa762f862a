"""A fused optimizer: memory passes counted, loop removed, everything else kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.state import OptimizerUpdate
from foretrace.tracer.trace import Device
from foretrace.transforms.compute.fused_optimizer import fused_optimizer
from foretrace.transforms.costs.optimizer_traffic import (
    count_fused_passes,
    find_any_update,
    find_update,
    memory_passes,
)
from tests.support.edges import links
from tests.support.jobs.simple import META, cpu_job, gpu_job
from tests.support.recordings.calibrations import calibration

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

FOREACH = "multi_tensor_apply_kernel<TensorListMetadata<{0}>, {1}<float, {0}, {2}, 0>, {3}>"
ADAM = [
    (FOREACH.format(1, "BinaryOpScalarFunctor", 1, "multiplies"), 80_000),
    (FOREACH.format(2, "TernaryOpScalarFunctor", 2, "Lerp"), 60_000),
    (FOREACH.format(2, "UnaryOpFunctor", 1, "Sqrt"), 40_000),
    (FOREACH.format(3, "PointwiseOpScalarListFunctor", 3, "divides"), 80_000),
]


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("elementwise_kernel<at::detail::Array<char *, (int)4>>(int, T2, T3)", 4),
        ("elementwise_kernel<std::array<char *, (unsigned long)3>>", 3),
        ("elementwise_kernel<std::array<char*, 3ul>>", 3),
        ("multi_tensor_apply_kernel<UnaryOpFunctor<float, (int)2, (int)1, (int)1>, Sqrt>", 2),
        ("multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<float, 2, 2, 0>, plus>", 3),
        ("some_kernel", 3),
    ],
)
def test_a_name_tells_the_memory_passes(name: str, passes: int) -> None:
    """Pointers of element-wise kernels, lists read and written of multi-tensor ones."""
    assert memory_passes(name) == passes


def test_what_the_recorder_saw_decides_the_fused_passes() -> None:
    """Else a square root gives Adam away, and one kind of kernel plain SGD."""
    assert count_fused_passes({"state_passes": 5}, ["sqrt"], {}) == 5
    assert count_fused_passes(None, ["mul", "Sqrt<float>"], {}) == 7
    assert count_fused_passes({}, ["mul", "add"], {}) == 5
    assert count_fused_passes({}, ["add"], {}) == 3


@pytest.mark.parametrize(
    ("names", "passes"),
    [
        ({"MulFunctor": 2, "addcmul": 1, "sqrt": 1, "addcdiv": 1}, 7),
        ({"Lerp": 1, "MulFunctor": 1, "addcmul": 1, "sqrt": 1, "addcdiv": 1}, 7),
        ({"MulFunctor": 1, "addcmul": 1, "sqrt": 1, "addcdiv": 1}, 5),
        ({"addcmul": 1, "sqrt": 1, "addcdiv": 1}, 5),
        ({"multi_tensor_apply_kernel<AdamFunctor<float>>": 1}, 7),
        ({"multi_tensor_apply_kernel<LAMBStage1Functor<float>>": 1}, 12),
        ({"multi_tensor_apply_kernel<SGDFunctor<float>>": 1}, 5),
        ({"multi_tensor_apply_kernel<AdagradFunctor<float>>": 1}, 5),
        ({"sqrt_kernel_cuda(at::TensorIteratorBase &)::[lambda()]": 1}, 7),
    ],
)
def test_kernels_give_the_optimizer_away(names: dict[str, float], passes: int) -> None:
    """Adam scales two moments, RMSprop one, Adagrad none; a lambda is no LAMB."""
    assert count_fused_passes(None, list(names), names) == passes


def test_the_user_may_know_better() -> None:
    """LAMB's 12 passes in place of Adam's 7."""
    adam, lamb = (fused_optimizer(gpu_job(), optimizer=name) for name in ("adam", "lamb"))
    work = [g.tasks["work_ns"][g.tasks["name"].str.contains("Fused")].iloc[0] for g in (adam, lamb)]

    assert work[1] / work[0] == pytest.approx(12 / 7, rel=0.01)
    with pytest.raises(TransformError, match="optimizer='adm' is unknown"):
        fused_optimizer(gpu_job(), optimizer="adm")


def test_what_is_fused_can_still_be_read() -> None:
    """apex: seven passes in two launches of 36 tensors."""
    name = "multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>"
    update = find_any_update(literal([(name, "kernel", 0, 70_000, "optimizer")] * 2))

    assert (update.memory_passes, update.fused_passes, update.tensors) == (7, 7, 72)
    assert update.pass_ns == pytest.approx(20_000, rel=0.01)


def test_many_elements_take_several_launches() -> None:
    """320 blocks of 65,536 elements per launch, whatever the number of tensors."""
    meta = replace(META, devices=(Device(0, "A100-SXM4-80GB"),), optimizer={"bytes": 4 * 10**8})
    graph = replace(gpu_job(), meta=meta)

    assert find_update(graph).launches == 5


def test_a_loop_becomes_one_kernel_of_seven_passes() -> None:
    """2 and 4 passes take 200 us together; 7 take 7/6 of it, and one launch is left."""
    graph = check(fused_optimizer(gpu_job(steps=2)))
    update = graph.tasks[graph.tasks["phase"] == "optimizer"]

    counts = update["kind"].tolist()
    assert {kind: counts.count(kind) for kind in set(counts)} == {
        "host": 2,
        "kernel": 2,
        "launch": 2,
        "sync": 2,
    }
    kernels = update[update["kind"] == "kernel"]["work_ns"].tolist()
    assert kernels == pytest.approx([235_286, 235_286], abs=60)
    assert "fused_optimizer: 6 memory passes over 1 tensors become 7" in graph.notes


def test_foreach_keeps_the_passes_and_saves_launches() -> None:
    """Six passes stay six passes, in two launches."""
    graph = check(fused_optimizer(gpu_job(steps=1), kind="foreach"))
    kernels = graph.tasks[(graph.tasks["phase"] == "optimizer") & (graph.tasks["kind"] == "kernel")]

    assert kernels["work_ns"].sum() == pytest.approx(204_000, abs=100)
    assert len(kernels) == 2


def foreach_adam(*, extra: str | None = None) -> Graph:
    """Build launches and kernels of a foreach Adam step."""
    kernels = [*ADAM, *([(extra, 50_000)] if extra else [])]
    count = len(kernels)
    return literal(
        [("cudaLaunchKernel", "launch", 0, 5_000, "optimizer")] * count
        + [(name, "kernel", 1, work, "optimizer") for name, work in kernels],
        [(i, count + i, "launch") for i in range(count)],
        meta=META,
    )


def test_time_tells_how_often_a_multi_tensor_kernel_ran() -> None:
    """20 us per pass: the multiplication's 80 us are two of 2 passes, so 13 in all."""
    update = find_update(foreach_adam())

    assert update.memory_passes == 13
    assert update.pass_ns == pytest.approx(20_000, rel=0.01)
    assert update.fused_passes == 7


def test_unscaling_is_no_part_of_the_update() -> None:
    """The gradient scaler's kernel and what only clips stay."""
    unscale = (
        "multi_tensor_apply_kernel<UnaryOpFunctor<float, 1, 1, 0>, non_finite_check_and_unscale>"
    )
    graph = check(fused_optimizer(foreach_adam(extra=unscale)))

    assert graph.tasks["name"].str.contains("non_finite").sum() == 1
    assert len(links(graph, "launch")) == 3


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("FusedAdamMathFunctor<float, 4>", "fused", "fused already"),
        (ADAM[0][0], "foreach", "runs as foreach already"),
        ("fill_kernel", "fused", "no element-wise kernel in the optimizer phase"),
    ],
)
def test_what_is_there_already_is_an_error(name: str, kind: str, message: str) -> None:
    """Nothing to fuse is not a gain of nothing."""
    with pytest.raises(TransformError, match=message):
        fused_optimizer(literal([(name, "kernel", 0, 50, "optimizer")]), kind=kind)


def test_no_optimizer_phase_is_an_error() -> None:
    """A forward pass has no update."""
    with pytest.raises(TransformError, match="no kernel in the optimizer phase"):
        fused_optimizer(literal([("relu", "kernel", 0, 50, "forward")]))


def test_a_cpu_streams_the_parameters_seven_times() -> None:
    """7 x 25,000 B at 25 GB/s and 2.5 us for each of 2 tensors are 12 us, in place of 200."""
    graph = check(fused_optimizer(cpu_job(steps=2)))
    update = graph.tasks[graph.tasks["phase"] == "optimizer"]

    assert update["work_ns"].tolist() == [12_000, 12_000]
    assert len(graph.tasks) == 10


def test_on_a_cpu_foreach_gains_nothing() -> None:
    """The loop stays, and a note says why."""
    graph = cpu_job()
    changed = fused_optimizer(graph, kind="foreach")

    assert changed.tasks is graph.tasks
    assert "on a CPU foreach takes as long" in changed.notes[0]


def test_a_cpu_needs_bytes_and_a_probe() -> None:
    """The error says how to get them; what is fused already is refused."""
    graph = cpu_job()
    with pytest.raises(TransformError, match="needs the parameters' bytes"):
        fused_optimizer(replace(graph, meta=META))
    with pytest.raises(TransformError, match="runs as fused already"):
        fused_optimizer(replace(graph, meta=replace(META, optimizer={"kind": "fused"})))


def test_the_recorded_optimizer_cannot_be_overruled() -> None:
    """The recording of an Adam makes 7 passes, as an AdamW does; an SGD makes 5."""
    with pytest.raises(TransformError, match=r"optimizer='sgd' contradicts this job .*: Adam\)"):
        fused_optimizer(cpu_job(), optimizer="sgd")

    assert fused_optimizer(cpu_job(), optimizer="adamw").notes


def two_optimizers(*kinds: str) -> Graph:
    """Return a step of a generator's and a discriminator's update, each of one weight."""
    names = ["aten::mm", "aten::mul_", "aten::addcdiv_", "aten::mul_", "aten::addcdiv_"]
    phases = ["forward", *["optimizer"] * 4]
    shapes = [None, *["[[50,100],[]]"] * 2, *["[[250,100],[]]"] * 2]
    operators = {
        "name": names,
        "parent": [-1] * 5,
        "step": [0] * 5,
        "phase": phases,
        "shapes": shapes,
    }
    spent = [9_000, 300_000, 300_000, 400_000, 400_000]
    tasks = [
        (name, "host", 0, ns, phase) for name, ns, phase in zip(names, spent, phases, strict=True)
    ]
    graph = literal(
        tasks,
        columns={"operator": np.arange(5, dtype=np.int32)},
        operators={**operators, "duration_ns": spent},
        meta=replace(cpu_job().meta, optimizer={"kind": "loop", "bytes": 20_000}),
        lag_ns=0,
        wrap=True,
    )
    rows = ((1, 2), (3, 4))
    return graph.with_state(updates=tuple(map(OptimizerUpdate, kinds, rows)))


def test_each_of_several_optimizers_is_fused() -> None:
    """7 passes over 20,000 and over 100,000 bytes at 25 GB/s, and 2.5 us for a tensor of each."""
    graph = check(fused_optimizer(two_optimizers("Adam", "AdamW")))
    update = graph.tasks[graph.tasks["phase"] == "optimizer"]

    assert sorted(update["work_ns"]) == [8_100, 30_500]


def test_an_optimizer_without_a_fused_form_stays() -> None:
    """That of sparse gradients takes what it took; the other is fused."""
    graph = check(fused_optimizer(two_optimizers("SparseAdam", "Adam")))
    update = graph.tasks[graph.tasks["phase"] == "optimizer"]

    assert sorted(update["work_ns"]) == [30_500, 300_000, 300_000]
    assert "SparseAdam have no fused form" in graph.notes[0]
    with pytest.raises(TransformError, match="nothing to fuse"):
        fused_optimizer(two_optimizers("SparseAdam", "Muon"))


def test_a_measured_ratio_is_that_of_the_updates_that_change() -> None:
    """Half of 800 us; the update of sparse gradients stays."""
    change = "fused_optimizer()"
    times = calibration([], segments={("optimizer", ""): 100.0, ("optimizer", change): 50.0})
    graph = two_optimizers("SparseAdam", "Adam").with_state(calibration=times)
    update = fused_optimizer(graph).tasks.query("phase == 'optimizer'")

    assert sorted(update["work_ns"]) == [300_000, 300_000, 400_000]
