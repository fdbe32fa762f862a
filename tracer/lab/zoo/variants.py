"""Ways to train a model of the zoo, and the changes between them that pairs measure.

`Variant` says how, `build` makes the job, `CHANGES` lists what is tried on every model.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from foretrace.tracer.child_process import worker_of_this
from foretrace.tracer.job import Job
from foretrace.tracer.lab.zoo.slow_dataset import SlowBatches, rounds_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from foretrace.tracer.lab.zoo.models import Model

WITHOUT_BLOCKS = ("gnmt", "dlrm")
"""Models without a list of blocks, in which checkpoints would have to be named; nor is there one
in models of other libraries, which have a colon in their name."""

WARMUP_BEFORE_CAPTURE = 3
INITIAL_SCALE = 1024.0  # small enough that no step is skipped, and measured, as an overflow
BUSY_SHARE = 0.5  # of the time of a fetch; the rest is waiting


@dataclass(frozen=True)
class Variant:
    """How a model is trained.

    ``precision`` is "fp32", "tf32", "amp_bf16" or "amp_fp16"; ``optimizer`` Adam as "loop",
    "foreach" or "fused". ``workers`` of a loader, ``None`` for a batch that lies in memory;
    ``load_ns`` is the time of one fetch alone. ``reads_loss`` calls ``.item()`` every step.
    """

    optimizer: str = "foreach"
    precision: str = "fp32"
    batch_factor: int = 1
    accumulation: int = 1
    channels_last: bool = False
    checkpointing: bool = False
    compiled: bool = False
    cuda_graph: bool = False
    reads_loss: bool = False
    workers: int | None = None
    load_ns: int = 0


@dataclass(frozen=True)
class ZooChange:
    """What is set before and after, and the scenario that predicts it.

    ``{n}`` in the scenario stands for the batch size after. ``needs`` is "" (nothing), "cuda",
    "images" or "blocks".
    """

    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    scenario: str
    needs: str = ""
    on_cpu: bool = field(default=False)

    def variants(self, *, cpu: bool) -> tuple[Variant, Variant]:
        """Return both sides; the optimizer is torch's own choice for the device unless set."""
        base = Variant(optimizer="loop" if cpu else "foreach")
        return replace(base, **self.before), replace(base, **self.after)

    def applies_to(self, model: Model, *, cpu: bool) -> bool:
        """Whether it can be tried on *model* there."""
        if self.needs == "cuda":
            return not cpu
        if self.needs == "blocks":
            return model.name not in WITHOUT_BLOCKS and ":" not in model.name
        return self.needs != "images" or model.data in ("images", "pixels")


CHANGES = (
    ZooChange(
        "fused",
        {"optimizer": "loop"},
        {"optimizer": "fused"},
        'fused_optimizer(kind="fused")',
        on_cpu=True,
    ),
    ZooChange("amp_bf16", {}, {"precision": "amp_bf16"}, 'amp(dtype="bf16")', on_cpu=True),
    ZooChange("batch_x2", {}, {"batch_factor": 2}, "batch_size(n={n})", on_cpu=True),
    ZooChange("batch_x4", {}, {"batch_factor": 4}, "batch_size(n={n})", on_cpu=True),
    ZooChange("loader_2", {"workers": 0}, {"workers": 2}, "dataloader(workers=2)", on_cpu=True),
    ZooChange("accumulate_2", {}, {"accumulation": 2}, "gradient_accumulation(k=2)", on_cpu=True),
    ZooChange(
        "checkpointing",
        {},
        {"checkpointing": True},
        "activation_checkpoint()",
        "blocks",
        on_cpu=True,
    ),
    ZooChange(
        "channels_last", {}, {"channels_last": True}, "channels_last()", "images", on_cpu=True
    ),
    ZooChange("accumulate_4", {}, {"accumulation": 4}, "gradient_accumulation(k=4)", on_cpu=True),
    ZooChange("amp_fp16", {}, {"precision": "amp_fp16"}, 'amp(dtype="fp16")', "cuda"),
    ZooChange("no_item", {"reads_loss": True}, {}, 'remove_sync(pattern="item")', "cuda"),
    ZooChange(
        "foreach",
        {"optimizer": "loop"},
        {"optimizer": "foreach"},
        'fused_optimizer(kind="foreach")',
        on_cpu=True,
    ),
    ZooChange("tf32", {}, {"precision": "tf32"}, "tf32()", "cuda"),
    ZooChange("loader_4", {"workers": 0}, {"workers": 4}, "dataloader(workers=4)"),
    ZooChange("loader_1", {"workers": 0}, {"workers": 1}, "dataloader(workers=1)"),
    ZooChange("compile", {}, {"compiled": True}, "compile()", on_cpu=True),
    ZooChange(
        "cuda_graphs", {}, {"cuda_graph": True}, "cuda_graphs()", "cuda"
    ),  # last: a failed capture may break the process
)
"""In the order in which a time budget is spent; ``on_cpu`` marks what a CPU tries by default."""

BY_NAME = {change.name: change for change in CHANGES}


def build(model: Model, variant: Variant, *, device: str, small: bool) -> Job:
    """Return the job that trains *model* as *variant* says on *device*, ``"cpu"`` or ``"cuda"``."""
    import torch

    torch.manual_seed(0)
    samples = model.shape(small=small).batch_size * variant.batch_factor
    network = model.network(small=small).to(device)
    network.checkpointing = variant.checkpointing
    batch = model.batch(samples, small=small)
    if variant.channels_last:
        network = network.to(memory_format=torch.channels_last)
        batch = tuple(_channels_last(part) for part in batch)
    optimizer = _adam(network, variant)
    train = _training_step(
        torch.compile(network) if variant.compiled else network, optimizer, variant, device
    )
    seen = None if variant.compiled else network  # hooks of the recorder would break the graph
    name = f"{model.name} {variant.precision} {variant.optimizer}"
    if variant.workers is not None:
        loader = _loader(batch, variant, device)
        return Job(train, seen, optimizer, samples, loader, name=name, device=device)
    inputs = [part.to(device) for part in batch]
    step = _capture_graph(train, inputs) if variant.cuda_graph else lambda: train(inputs)
    return Job(step, seen, optimizer, samples, name=name, device=device)


def _channels_last(part: Any) -> Any:
    import torch

    is_image = part.dim() == 4  # noqa: PLR2004 - samples, channels, height, width
    return part.contiguous(memory_format=torch.channels_last) if is_image else part


def _adam(network: Any, variant: Variant) -> Any:
    import torch

    return torch.optim.Adam(
        network.parameters(),
        lr=1e-4,
        foreach=variant.optimizer == "foreach",
        fused=variant.optimizer == "fused",
        capturable=variant.cuda_graph,
    )


def _training_step(
    network: Any, optimizer: Any, variant: Variant, device: str
) -> Callable[[Sequence[Any]], None]:
    """Return a function that runs one optimizer step on a batch."""
    import torch

    kinds = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}
    dtype = kinds.get(variant.precision)
    scaler = (
        torch.amp.GradScaler(device, init_scale=INITIAL_SCALE) if dtype is torch.float16 else None
    )
    set_tf32 = _tf32_switch(device)

    def train(batch: Sequence[Any]) -> None:
        set_tf32(variant.precision == "tf32")
        inputs = [part.to(device, non_blocking=True) for part in batch]
        optimizer.zero_grad(set_to_none=True)
        for _ in range(variant.accumulation):
            with nullcontext() if dtype is None else torch.autocast(device, dtype):
                loss = network(*inputs)
            if variant.accumulation > 1:
                loss = loss / variant.accumulation
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if variant.reads_loss:
            loss.item()

    return train


def _tf32_switch(device: str) -> Callable[[bool], None]:
    """Return what allows or forbids TF32, a setting of the process that each step sets anew."""
    if device == "cpu":
        return lambda _allowed: None
    return _cuda_tf32_switch()


def _cuda_tf32_switch() -> Callable[[bool], None]:  # pragma: no cover - needs a GPU
    import torch

    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):

        def set_old(allowed: bool) -> None:  # noqa: FBT001 - one switch, one argument
            for backend in backends:
                backend.allow_tf32 = allowed

        return set_old

    def set_new(allowed: bool) -> None:  # noqa: FBT001 - one switch, one argument
        for backend in (backends[0], torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            backend.fp32_precision = "tf32" if allowed else "ieee"

    return set_new


def _capture_graph(
    train: Callable[[Sequence[Any]], None], inputs: list[Any]
) -> Callable[[], None]:  # pragma: no cover - needs a GPU
    """Return the replay of one captured training step."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARMUP_BEFORE_CAPTURE):
            train(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train(inputs)
    replay: Callable[[], None] = graph.replay
    return replay


def _loader(batch: Sequence[Any], variant: Variant, device: str) -> Any:
    from torch.utils.data import DataLoader

    busy_ns = round(variant.load_ns * BUSY_SHARE)
    slow = SlowBatches(batch, wait_ns=variant.load_ns - busy_ns, rounds=rounds_for(busy_ns))
    return DataLoader(
        slow,
        batch_size=None,
        num_workers=variant.workers or 0,
        pin_memory=device == "cuda",
        worker_init_fn=worker_of_this(),
    )
