"""The recording side of calibration: tiny jobs, really logged, built without data and timed."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

torch = pytest.importorskip("torch")

from foretrace.tracer.calibration.align_calls import align  # noqa: E402 - needs torch
from foretrace.tracer.calibration.calibrate import calibrate, where  # noqa: E402
from foretrace.tracer.calibration.fake_run import JobChange  # noqa: E402
from foretrace.tracer.calibration.fake_tensors import without_data  # noqa: E402
from foretrace.tracer.calibration.inputs import Inputs  # noqa: E402
from foretrace.tracer.calibration.loader_handoff import handover_time  # noqa: E402
from foretrace.tracer.calibration.operator_call import Call, Operand  # noqa: E402
from foretrace.tracer.calibration.operator_log import log_step  # noqa: E402
from foretrace.tracer.calibration.operator_timer import Stopwatch  # noqa: E402
from foretrace.tracer.calibration.segment_timer import checkpoint_times, update_times  # noqa: E402

ATEN = torch.ops.aten
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adam": partial(torch.optim.Adam, foreach=False),
    "AdamW": torch.optim.AdamW,
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "RMSprop": torch.optim.RMSprop,
}


class Net(torch.nn.Module):  # type: ignore[name-defined]  # torch may be absent
    """A bit of everything that training meets: convolution, norms, embedding, dropout, a tie."""

    def __init__(self) -> None:
        super().__init__()
        self.image = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 36, 8),
        )
        self.words = torch.nn.Embedding(10, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(8, 10, bias=False)
        self.head.weight = self.words.weight

    def forward(self, images: Any, words: Any, labels: Any) -> Any:
        """Return the loss."""
        x = self.image(images) + self.words(words)
        return torch.nn.functional.cross_entropy(self.head(self.drop(self.norm(x))), labels)


def build(
    *,
    samples: int = 2,
    autocast: bool = False,
    accumulation: int = 1,
    channels_last: bool = False,
    optimizer: str = "Adam",
) -> Job:
    """Return a job that trains `Net` and reads its loss every step."""
    torch.manual_seed(0)
    model = Net().to("cpu")
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    update = OPTIMIZERS[optimizer](model.parameters())
    batch = torch.randn(samples, 3, 6, 6), *torch.randint(10, (2, samples))

    def step() -> float:
        update.zero_grad()
        for _ in range(accumulation):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = model(*batch)
            (loss / accumulation if accumulation > 1 else loss).backward()
        update.step()
        return float(loss.item())

    return Job(step, model, update, samples, name="net")


def changed(text: str, **arguments: Any) -> JobChange:
    """Return the what-if *text*, made by building with *arguments*."""
    return JobChange.of(text, partial(build, **arguments))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads on a busy machine wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def names(calls: list[Call]) -> list[tuple[str, str]]:
    """Return operator, without the mark of one in place, and phase."""
    return [(call.operator.removesuffix("_"), call.phase) for call in calls]


@pytest.mark.parametrize(
    "variant", [{}, {"autocast": True}, {"channels_last": True}, {"samples": 4}], ids=str
)
def test_a_step_without_data_runs_the_same_operators(variant: dict[str, Any]) -> None:
    """Names, phases and order are those of a real step."""
    job = build(**variant)
    job.step()
    real = log_step(job, is_real=True)
    with without_data():
        fake = log_step(build(**variant), is_real=False)
    assert names(fake) == names(real)
    assert {"forward", "backward"} == {call.phase for call in real}


def test_views_and_the_update_are_not_logged() -> None:
    """What costs nothing, and what is timed as a whole, is left out; the update happens."""
    job = build()
    before = job.model.head.weight.detach().clone()
    operators = {call.operator for call in log_step(job, is_real=True)}
    assert not operators & {"aten::view", "aten::t", "aten::detach", "aten::sqrt", "aten::addcdiv_"}
    assert "aten::convolution_backward" in operators
    assert not torch.equal(before, job.model.head.weight)
    assert "step" not in vars(job.optimizer)


def test_without_data_nothing_is_updated() -> None:
    """The optimizer of a job without data is left out, and shared weights stay shared."""
    with without_data():
        job = build(channels_last=True)
        log_step(job, is_real=False)
    assert job.model.head.weight is job.model.words.weight
    assert not job.optimizer.state


def call(function: Any, *shapes: tuple[int, ...], phase: str = "forward") -> Call:
    """Return a call of *function* with fp32 tensors of *shapes*."""
    made = [torch.empty(shape) for shape in shapes]
    operands = [Operand(tuple(t.shape), t.stride(), t.dtype, "cpu") for t in made]
    return Call(function, (tuple(operands), {}), phase)


def test_alignment_keeps_order_and_phase() -> None:
    """In place or not is the same; casts are new; of twins the one with the same shapes is it."""
    mm, relu, cast = ATEN.mm.default, ATEN.relu.default, ATEN._to_copy.default
    before = [call(mm, (2, 3), (3, 4)), call(relu, (2, 4)), call(mm, (2, 4), (4, 5))]
    after = [
        call(cast, (2, 3)),
        call(ATEN.relu_.default, (2, 4)),
        call(mm, (2, 4), (4, 5)),
        call(mm, (2, 4), (4, 5), phase="backward"),
    ]
    assert align(before, after) == [-1, 1, 2, -1]
    assert align([before[0], before[2]], [after[2]]) == [1]
    assert align(before, []) == []
    assert align([], after) == [-1] * 4


def test_every_operator_can_be_timed_alone() -> None:
    """Old and new forms of all operators of a step run, with times above zero."""
    changes = [
        changed('amp(dtype="bf16")', autocast=True),
        changed("batch_size(n=4)", samples=4),
        changed("channels_last()", channels_last=True),
    ]
    found = calibrate(build(), build, changes, seconds=20)
    assert found.left_out == []
    assert min(row.ns for row in found.rows) > 0
    assert {row.change for row in found.rows} == {"", *(change.text for change in changes)}
    for change in changes:
        after = [row for row in found.rows if row.change == change.text]
        assert [row.position for row in after] == list(range(len(after)))
        of = [row.of for row in after if row.of >= 0]
        assert of == sorted(of)
    cast = [row for row in found.rows if row.change == changes[0].text and row.of < 0]
    assert {row.operator for row in cast} == {"aten::_to_copy"}
    batch = [row for row in found.rows if row.change == changes[1].text]
    assert min(row.of for row in batch) == 0


def test_accumulation_adds_to_each_gradient() -> None:
    """New are one sum in place per parameter, and the scaling of the loss, there and back."""
    found = calibrate(
        build(), build, [changed("gradient_accumulation(k=2)", accumulation=2)], seconds=5
    )
    added = [row.operator for row in found.rows if row.list == "after"]
    parameters = len(list(build().model.parameters()))
    assert added.count("aten::add_") == parameters
    assert added.count("aten::div") == 4


def test_a_change_that_cannot_be_built_is_said() -> None:
    """The reason stands with the change; the rest is measured all the same."""

    def broken() -> Job:
        raise OSError("no such data")

    found = calibrate(build(), build, [JobChange("batch_size", {"n": 4}, broken)], seconds=1)
    assert found.left_out == ["batch_size(n=4): OSError: no such data"]
    assert {row.list for row in found.rows} == {"before"}


def test_time_goes_to_what_changes_first() -> None:
    """With no time at all nothing is timed, and it is said how much is missing."""
    found = calibrate(build(), build, [changed("batch_size(n=4)", samples=4)], seconds=0)
    assert all(math.isnan(row.ns) for row in found.rows)
    assert found.left_out[0].startswith("no time for ")


def test_an_interrupt_keeps_what_was_timed() -> None:
    """The times before the interrupt are handed over."""
    function = ATEN.relu.default

    def interrupted(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    clock = Stopwatch(
        {
            ("aten::relu", "first"): call(function, (8, 8)),
            ("aten::relu", "second"): call(
                _Function(function._schema, interrupted),
                (8, 8),
            ),
        }
    )
    with pytest.raises(KeyboardInterrupt):
        clock.run(5)
    known = {key[1] for key, timing in clock.timings.items() if timing.is_known}
    assert known == {"first"}


class _Function(SimpleNamespace):
    """An operator that does something else."""

    def __init__(self, schema: Any, run: Callable[..., None]) -> None:
        super().__init__(_schema=schema, run=run)

    def __call__(self, *arguments: Any) -> None:
        """Do it."""
        self.run(*arguments)


def test_what_cannot_run_alone_is_said() -> None:
    """The reason is torch's; other operators are timed."""
    bad, good = call(ATEN.mm.default, (2, 3), (2, 3)), call(ATEN.mm.default, (2, 3), (3, 2))
    clock = Stopwatch({bad.key: bad, good.key: good})
    clock.run(5)
    assert "mat1 and mat2" in clock.failures[bad.key]
    assert clock.timings[good.key].ns > 0
    assert math.isnan(clock.timings[bad.key].ns)


def test_operators_in_place_never_see_their_own_results() -> None:
    """Each run starts from the same values, neither zero nor denormal."""
    doubling = call(ATEN.mul_.Tensor, (4,), (4,))
    inputs = Inputs([doubling])
    first, _ = inputs.of(doubling)
    values = first[0].clone()
    ATEN.mul_.Tensor(*first)
    again, _ = inputs.of(doubling)
    assert torch.equal(values, again[0])
    assert float(values.min()) >= 0.1


def test_recorded_values_grow_with_the_shape() -> None:
    """Labels repeat; a series of beginnings goes on rising; expanded tensors stay expanded."""

    def grown(values: Any, shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
        operand = Operand(shape, stride, values.dtype, "cpu", values)
        given, _ = Inputs([]).of(Call(ATEN.relu.default, ((operand,), {}), "forward"))
        return given[0]

    assert grown(torch.tensor([3, 1]), (5,), (1,)).tolist() == [3, 1, 3, 1, 3]
    assert grown(torch.tensor([0, 4, 8]), (6,), (1,)).tolist() == [0, 4, 8, 12, 16, 20]
    assert grown(torch.tensor(2.5), (3,), (0,)).stride() == (0,)
    assert grown(torch.zeros(0, dtype=torch.int64), (2,), (1,)).tolist() == [0, 0]


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD"])
def test_updates_are_timed_on_copies(optimizer: str) -> None:
    """Each form runs on the state that the job has, and leaves the job as it was."""
    job = build(optimizer=optimizer)
    job.step()
    times = update_times(job, ["loop", "foreach", "fused"])
    steps = {float(s["step"]) for s in job.optimizer.state.values() if "step" in s}
    assert set(times) == {"", "loop", "foreach", "fused"}
    assert min(timing.ns for timing in times.values()) > 0
    assert steps <= {2.0}  # one step here, one for the gradients


def test_a_form_that_an_optimizer_lacks_is_refused() -> None:
    """So is a job that names none, or never calls it."""
    with pytest.raises(RecordError, match="RMSprop has no form 'fused'"):
        update_times(build(optimizer="RMSprop"), ["fused"])
    with pytest.raises(RecordError, match="names no optimizer"):
        update_times(Job(print), ["fused"])
    with pytest.raises(RecordError, match="was not called"):
        update_times(Job(list, optimizer=build().optimizer), ["fused"])


def test_of_several_optimizers_those_with_the_form_are_timed() -> None:
    """Sparse gradients have no fused update: what the others take is compared."""
    words, head = torch.nn.Embedding(8, 4, sparse=True), torch.nn.Linear(4, 2)
    rare = torch.optim.SparseAdam(words.parameters())
    usual = torch.optim.Adam(head.parameters())

    def step() -> None:
        head(words(torch.tensor([1, 2]))).sum().backward()
        rare.step()
        usual.step()

    job = Job(step, optimizer=[rare, usual])

    assert set(update_times(job, ["fused"])) == {"", "fused"}
    with pytest.raises(RecordError, match="SparseAdam has no form 'fused'"):
        update_times(Job(step, optimizer=rare), ["fused"])


def test_an_optimizer_that_the_job_does_not_name_is_no_forward() -> None:
    """Its update is left out of the log, with data and without."""
    head = torch.nn.Linear(4, 2)
    usual = torch.optim.Adam(head.parameters(), foreach=False)

    def step() -> None:
        head(torch.ones(3, 4)).sum().backward()
        usual.step()

    job = Job(step)

    assert "aten::addcdiv_" not in {call.operator for call in log_step(job, is_real=True)}


def test_segments_stand_beside_the_operators() -> None:
    """An update has a row for the form that it has and for each asked for."""
    changes = [changed('fused_optimizer(kind="fused")'), changed("activation_checkpoint()")]
    found = calibrate(build(), build, changes, seconds=1)
    rows = {(r.operator, r.change): r.ns for r in found.rows if r.list == "segment"}
    assert set(rows) == {
        ("optimizer", ""),
        ("optimizer", 'fused_optimizer(kind="fused")'),
        ("checkpoint", "activation_checkpoint()"),
    }
    assert [row for row in found.rows if row.list != "segment"] == []


def test_segments_need_no_log_of_operators() -> None:
    """A step is run for the gradients; the two that log operators are not."""
    steps = []
    job = build()
    counted = Job(lambda: steps.append(job.step()), job.model, job.optimizer, 2, name="net")
    calibrate(counted, build, [changed('fused_optimizer(kind="fused")')], seconds=1)
    assert len(steps) == 1


def test_a_calibration_says_whose_it_is() -> None:
    """The job's name, and the bytes of what its model learns and its optimizer updates."""
    job = build()
    size = sum(p.numel() * 4 for p in job.model.parameters())
    found = where(job)
    assert found.job == "net"
    assert found.parameter_bytes == {"optimizer": size, "model": size}
    assert where(Job(print)).parameter_bytes == {}


def test_checkpoints_cost_the_host_something() -> None:
    """Never less than nothing."""
    assert checkpoint_times("cpu").ns >= 0


def test_known_times_are_taken_again_when_the_other_form_is() -> None:
    """A ratio never mixes a time of now with one of another day."""
    kept: dict[Any, Any] = {}
    change = changed("batch_size(n=4)", samples=4)
    calibrate(build(), build, [change], seconds=10, keep=kept.update)
    again: dict[Any, Any] = {}
    calibrate(build(), build, [change], seconds=10, earlier=kept, keep=again.update)
    assert again == {}
    del kept[next(key for key in kept if key[0] == "aten::convolution")]
    calibrate(build(), build, [change], seconds=10, earlier=kept, keep=again.update)
    assert {key[0] for key in again} == {"aten::convolution"}
    assert len(again) == 2


def test_a_batch_from_workers_costs_its_handover() -> None:
    """Passing a batch between processes takes time that a call does not."""

    class Numbers(torch.utils.data.Dataset):  # type: ignore[name-defined]
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            return torch.full((16,), float(index)), {"label": index % 2}

    weights = torch.ones(16, requires_grad=True)

    def step(batch: Any) -> None:
        values, labels = batch
        ((values * weights).sum(1) - labels["label"]).square().mean().backward()

    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8)
    job = Job(step, loader=loader, name="numbers")
    change = JobChange.of("dataloader(workers=1)", lambda: job)
    rows = calibrate(job, lambda: job, [change], seconds=1).rows
    (handover,) = [row for row in rows if row.operator == "handover"]
    assert handover.change == "dataloader(workers=1)"
    assert handover.ns > 0


def test_without_a_loader_no_batch_is_handed_over() -> None:
    """The reason is said, and names the job."""
    with pytest.raises(RecordError, match="no DataLoader"):
        handover_time(Job(lambda: None, name="plain"), 2)
