"""Draw what a step does: layers forward and backward, uploads, syncs, collectives, the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.counterfactual.program import (
    MAIN_STREAM,
    Backward,
    Collective,
    Copy,
    DeviceIdle,
    GraphLaunch,
    HostWork,
    Launch,
    Memset,
    NextBatch,
    Node,
    Range,
    RecordEvent,
    SyncDevice,
    SyncEvent,
    SyncStream,
    WaitEvent,
    item,
)

if TYPE_CHECKING:
    from tests.counterfactual.draw import Choices

GEMM = "sgemm"
SIDE_STREAM, NCCL_STREAM, UPLOAD_STREAM = 9, 24, 20
UPLOADED, FORKED, JOINED, THROTTLE, BUCKET = 1, 2, 3, 4, 10
LAYERS = (  # operator, kernel, and of a layer's device time, how many percent
    ("aten::addmm", "ampere_sgemm_128x64_nn", 100),
    ("aten::relu", "void at::native::vectorized_elementwise_kernel<4, Relu>(int, Relu)", 25),
    ("aten::sum", "void at::native::reduce_kernel<512, 1, Sum>(Sum)", 30),
)
DEVICE_PERCENT = {  # device time of a kernel, of the host's time for an operator
    "host": (5, 60),
    "device": (150, 400),
    "loader": (10, 300),
    "sync": (50, 250),
    "communication": (30, 250),
}


class _Step:
    """What all parts of one drawn step share."""

    def __init__(self, choices: Choices, regime: str, ranks: int) -> None:
        self.choices, self.regime, self.ranks = choices, regime, ranks
        self.work_ns = choices.pick([10_000, 5_000, 20_000, 40_000])
        low, high = DEVICE_PERCENT[regime]
        self.kernel_ns = (self.work_ns + 15_000) * choices.integer(low, high) // 100
        self.layers = choices.integer(3, 24)

    def operator(self, name: str, kernel: str, percent: int, **more: Any) -> list[Any]:
        """Return one operator with its launch, and the time until the next."""
        ns = max(self.kernel_ns * percent // 100, 1_500)
        inside = (HostWork(self.work_ns // 2), Launch(kernel, ns, **more), HostWork(2_000))
        return [Range(name, inside), HostWork(self.work_ns // 2)]

    def forward(self) -> list[Any]:
        """Return the forward pass, the second half perhaps as a graph."""
        step: list[Any] = []
        graphed = self.choices.chance(15)
        for number in range(self.layers // 2 if graphed else self.layers):
            for name, kernel, percent in LAYERS[: 1 + number % 3]:
                step += self.operator(name, kernel, percent)
        return [*step, *(self.graph() if graphed else [])]

    def graph(self) -> list[Any]:
        """Return a graph launch, perhaps with a branch that joins again."""
        branched = self.choices.chance(50)
        nodes: list[Node] = []
        for _ in range(max(self.layers // 3, 1)):
            nodes.append(Node(LAYERS[0][1], self.kernel_ns))
            after: tuple[int, ...] = ()
            if branched:
                side = Node(LAYERS[1][1], self.kernel_ns // 2, 1, (len(nodes) - 1,))
                nodes.append(side)
                after = (len(nodes) - 1,)
            nodes.append(Node(LAYERS[0][1], self.kernel_ns // 3))
            nodes.append(Node(LAYERS[2][1], self.kernel_ns // 4, 0, after))
        return [GraphLaunch(tuple(nodes)), HostWork(self.work_ns)]

    def backward(self) -> list[Any]:
        """Return the backward pass with the collectives of its buckets."""
        step: list[Any] = []
        bucket = max(self.layers // self.choices.integer(1, 4), 1)
        buckets = 0
        for number in range(self.layers):
            body: list[Any] = [HostWork(self.work_ns // 3)]
            for part in range(2):
                body += self.operator("aten::mm", LAYERS[0][1], 90 - 20 * part)
            if number % 4 == 3 and self.choices.chance(30):
                body.append(Memset(1_500))
            name = "autograd::engine::evaluate_function: AddmmBackward0"
            step += [Range(name, tuple(body), sequence=number), HostWork(self.work_ns // 3)]
            if self.ranks > 1 and (number + 1) % bucket == 0:
                step.append(self.all_reduce(buckets, bucket))
                buckets += 1
        self.buckets = buckets
        return step

    def all_reduce(self, number: int, layers: int) -> Range:
        """Return the reduction of the gradients of *layers* layers, on a stream of its own."""
        low, high = (120, 300) if self.regime == "communication" else (10, 90)
        transfer = layers * 2 * self.kernel_ns * self.choices.integer(low, high) // 100
        done = BUCKET + 2 * number
        body = (
            HostWork(6_000),
            RecordEvent(done),
            WaitEvent(done, NCCL_STREAM),
            Collective(layers * 4_194_304, 12_000, transfer, NCCL_STREAM),
            RecordEvent(done + 1, NCCL_STREAM),
            HostWork(4_000),
        )
        return Range("c10d::allreduce_", body)

    def small_reduction(self) -> Range:
        """Return the reduction of a few numbers: all of it is latency."""
        done = BUCKET + 2 * self.buckets
        self.buckets += 1
        body = (
            *(HostWork(6_000), RecordEvent(done), WaitEvent(done, NCCL_STREAM)),
            *(Collective(4_096, 12_000, 50, NCCL_STREAM), RecordEvent(done + 1, NCCL_STREAM)),
        )
        return Range("c10d::allreduce_", body)

    def join_reductions(self) -> list[Any]:
        """Let the main stream wait for all reductions."""
        return [WaitEvent(BUCKET + 2 * number + 1, MAIN_STREAM) for number in range(self.buckets)]

    def upload(self) -> list[Any]:
        """Return how the batch gets to the device."""
        how = self.choices.pick(["pageable", "pinned", "small", "side stream", "none", "none"])
        if how == "none":
            return []
        ns = self.kernel_ns * self.choices.integer(1, 4)
        stream = UPLOAD_STREAM if how == "side stream" else MAIN_STREAM
        size = 32_768 if how == "small" else max(ns * 12, 131_072)
        ns = 3_000 if how == "small" else ns
        copy = Copy("HtoD", size, ns, pageable=how in {"pageable", "small"}, stream=stream)
        step: list[Any] = [Range("aten::copy_", (HostWork(5_000), copy, HostWork(2_000)))]
        if how == "side stream":
            step += [RecordEvent(UPLOADED, UPLOAD_STREAM), WaitEvent(UPLOADED, MAIN_STREAM)]
        return step

    def beside(self) -> list[Any]:
        """Return kernels on a second stream, forked and joined by events, and others beside."""
        fills = self.choices.chance(40)
        step: list[Any] = [RecordEvent(FORKED), WaitEvent(FORKED, SIDE_STREAM)]
        for _ in range(self.choices.integer(1, 5)):
            name, kernel, _ = LAYERS[1]
            step += self.operator(name, kernel, 60, stream=SIDE_STREAM, fills=fills)
            step += self.operator(*LAYERS[0])
        return [*step, RecordEvent(JOINED, SIDE_STREAM), WaitEvent(JOINED, MAIN_STREAM)]

    def update(self) -> list[Any]:
        """Return the optimizer step."""
        kernel = "void at::native::multi_tensor_apply_kernel<FusedAdam>(FusedAdam)"
        body: list[Any] = [HostWork(self.work_ns)]
        for _ in range(self.choices.integer(1, 6)):
            body += self.operator("aten::_fused_adamw_", kernel, 80)
        return [Range("Optimizer.step#AdamW.step", tuple(body), "user_annotation")]

    def waits(self) -> list[Any]:
        """Return what the step waits for at its end."""
        must = self.regime == "sync"
        kinds = ["item", "stream", "device", "item"] if must else ["none"] * 6 + ["item", "device"]
        kind = self.choices.pick(kinds)
        ends: dict[str, Any] = {"item": item(), "stream": SyncStream(), "device": SyncDevice()}
        step: list[Any] = [ends[kind]] if kind in ends else []
        if not must and kind == "none" and self.choices.chance(10):
            step = [SyncEvent(THROTTLE), RecordEvent(THROTTLE)]
        return [*step, HostWork(self.work_ns)] if step else []


def draw_step(choices: Choices, regime: str, *, loader: bool, ranks: int) -> list[Any]:
    """Draw the operations of a step."""
    step = _Step(choices, regime, ranks)
    total = step.layers * 4 * (step.work_ns + 15_000)
    drawn: list[Any] = [NextBatch()] if loader else []
    drawn += step.upload()
    drawn += step.forward()
    if choices.chance(12):
        drawn += step.beside()
    if regime == "sync" and choices.chance(40):
        drawn += [item()]
    if choices.chance(8):
        drawn += [DeviceIdle(total * choices.integer(5, 40) // 100)]
    backward = step.backward()
    drawn += [Backward(tuple(backward))] if choices.chance(75) else backward
    if ranks > 1 and choices.chance(50):
        drawn.append(step.small_reduction())
    drawn += step.join_reductions()
    if choices.chance(10):
        drawn += [HostWork(total * choices.integer(5, 40) // 100)]
    return [*drawn, *step.update(), *step.waits()]
