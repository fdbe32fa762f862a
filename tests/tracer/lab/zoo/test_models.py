"""Every model of the zoo trains, in every variant that a CPU can run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.tracer.job import runner
from foretrace.tracer.lab.zoo.models import BY_NAME as MODELS
from foretrace.tracer.lab.zoo.models import ZOO
from foretrace.tracer.lab.zoo.slow_dataset import SlowBatches, rounds_for
from foretrace.tracer.lab.zoo.variants import BY_NAME as CHANGES
from foretrace.tracer.lab.zoo.variants import Variant, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foretrace.tracer.lab.zoo.models import Model
    from foretrace.tracer.lab.zoo.variants import ZooChange

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads on a busy machine wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


PUBLISHED_PARAMETERS = {  # in millions, as the papers and torchvision count them
    "resnet50": 25.6,
    "vgg19": 143.7,
    "densenet121": 8.0,
    "bert-base": 109.0,
    "bert-large": 334.0,
    "gpt2": 124.0,
    "vit-b16": 86.6,
    "mobilenet": 3.5,
}


@pytest.mark.parametrize("model", ZOO, ids=lambda model: model.name)
def test_a_small_model_learns(model: Model) -> None:
    """One step changes every parameter that has a gradient, and each has one."""
    job = build(model, Variant(optimizer="loop"), device="cpu", small=True)
    before = [p.detach().clone() for p in job.model.parameters()]
    runner(job)()
    changed = [not torch.equal(a, b) for a, b in zip(before, job.model.parameters(), strict=True)]
    assert all(changed)
    assert job.batch_size == model.small.batch_size


@pytest.mark.parametrize(("name", "millions"), PUBLISHED_PARAMETERS.items())
def test_full_models_have_the_published_size(name: str, millions: float) -> None:
    """Counted without memory; within 2 %, since heads and norms differ a little."""
    with torch.device("meta"):
        network = MODELS[name].network(small=False)
    count = sum(p.numel() for p in network.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize(
    "name", sorted(n for n, c in CHANGES.items() if c.needs != "cuda" and n != "compile")
)
def test_every_change_of_a_cpu_can_be_built(name: str) -> None:
    """Both sides run a step; bf16 products may be slow, so the smallest network serves."""
    model = MODELS["unet"]
    for variant in CHANGES[name].variants(cpu=True):
        if variant.workers:
            continue  # worker processes are tried where pairs are recorded
        loading = 1_000_000 if variant.workers is not None else 0
        job = build(model, replace(variant, load_ns=loading), device="cpu", small=True)
        runner(job)()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as it loads its compiler
def test_a_compiled_job_names_no_model() -> None:
    """The recorder's hooks would break the graph; compiling itself waits for the first step."""
    job = build(MODELS["dlrm"], Variant(optimizer="loop", compiled=True), device="cpu", small=True)

    assert job.model is None
    assert callable(job.step)


def test_checkpointing_does_not_change_the_gradient() -> None:
    """It trades memory for time, and nothing else."""
    losses = []
    for checkpointing in (False, True):
        job = build(
            MODELS["gpt2"],
            Variant(optimizer="loop", checkpointing=checkpointing),
            device="cpu",
            small=True,
        )
        job.model.eval()  # no dropout
        runner(job)()
        losses.append(job.model.head.weight.detach().sum())
    assert torch.equal(losses[0], losses[1])


def test_changes_know_where_they_apply() -> None:
    """Channels exist in images only, and TF32 on a GPU only."""
    assert CHANGES["channels_last"].applies_to(MODELS["unet"], cpu=True)
    assert not CHANGES["channels_last"].applies_to(MODELS["gpt2"], cpu=True)
    assert CHANGES["checkpointing"].applies_to(MODELS["gpt2"], cpu=True)
    assert not CHANGES["checkpointing"].applies_to(MODELS["gnmt"], cpu=True)
    assert not CHANGES["tf32"].applies_to(MODELS["gpt2"], cpu=True)
    assert CHANGES["tf32"].applies_to(MODELS["gpt2"], cpu=False)


def test_both_sides_differ_in_the_change_alone() -> None:
    """The optimizer is torch's choice for the device unless it is what changes."""
    before, after = CHANGES["batch_x2"].variants(cpu=False)
    assert (before.optimizer, after.optimizer) == ("foreach", "foreach")
    assert replace(after, batch_factor=1) == before
    assert CHANGES["fused"].variants(cpu=True)[0].optimizer == "loop"


def test_slow_batches_are_fresh_copies() -> None:
    """Each fetch does its work and gives a batch of its own."""
    batch = (torch.ones(2),)
    slow = SlowBatches(batch, wait_ns=0, rounds=rounds_for(1))
    assert len(slow) == 1_000_000
    assert torch.equal(slow[0][0], batch[0])
    assert slow[0][0] is not batch[0]


@pytest.mark.parametrize("change", [c for c in CHANGES.values() if c.on_cpu], ids=lambda c: c.name)
def test_scenarios_are_what_ifs_that_exist(change: ZooChange) -> None:
    """What predicts a usual change of a CPU can be typed as it stands."""
    from foretrace.transforms.scenario import parse_scenario

    assert len(parse_scenario([change.scenario.format(n=8)])) == 1
