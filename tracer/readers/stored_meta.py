"""What a file says of a recording besides its events: typed and within bounds, or refused.

In: the JSON in our own Parquet, or the facts of a pair. Out: the same, and nothing to be feared in
it. Keys that are not declared here are passed on, as later versions may write more.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import msgspec

from foretrace.errors import TraceError
from foretrace.tracer.data_issues import BY_NAME
from foretrace.tracer.trace import Device, TraceMeta

VERSION = 1
"""Raised when an older reader would misread the file; new columns and fields do not."""
LONGEST = 1 << 16
"""Characters of a command line, the longest text there is."""
MOST_NS = 10**16
"""115 days: no step, and no time of a part of one, is longer."""
MOST = 2**62

Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Size = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Nanoseconds = Annotated[float, msgspec.Meta(gt=0, le=MOST_NS)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Sized = tuple[Text, Annotated[list[Count], msgspec.Meta(max_length=64)], Count]
"""A parameter or buffer: its name, shape, and bytes per element."""


class StoredDevice(msgspec.Struct):
    """A `Device`."""

    index: Rank
    name: Text
    sm_count: Size | None = None
    memory_bytes: Size | None = None
    threads_per_sm: Size | None = None


class Optimizer(msgspec.Struct):
    """What `describe_optimizer` found out."""

    name: Text | None = None
    kind: Text | None = None
    parameters: Count | None = None
    tensors: Count | None = None
    bytes: Count | None = None
    state_passes: Annotated[float, msgspec.Meta(ge=0, le=1000)] | None = None


class Loader(msgspec.Struct):
    """What `describe_loader` found out."""

    workers: Annotated[int, msgspec.Meta(ge=0, le=2**16)] | None = None
    prefetch: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None
    load_ns: Annotated[float, msgspec.Meta(ge=0, le=MOST_NS)] | None = None
    cpu_share: Share | None = None
    batch_bytes: Count | None = None


class Machine(msgspec.Struct):
    """What the probe found out: cores, GFLOP/s, GB/s, and of products (size, GFLOP/s) each."""

    cores: Annotated[float, msgspec.Meta(ge=0, le=2**20)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=0, le=2**20)] | None = None
    cpu: Text | None = None
    memory_bytes: Count | None = None
    fp32_gflops: Rate | None = None
    bf16_gflops: Rate | None = None
    conv_fp32_gflops: Rate | None = None
    conv_bf16_gflops: Rate | None = None
    copy_gbps: Rate | None = None
    add_gbps: Rate | None = None
    cast_gbps: Rate | None = None
    update_gbps: Rate | None = None
    has_bf16: bool | None = None
    products: dict[Text, dict[Text, list[tuple[Rate, Rate]]]] | None = None


class Memory(msgspec.Struct):
    """What `peak_allocation` found out."""

    device: Rank | None = None
    allocated_bytes: Count | None = None
    reserved_bytes: Count | None = None
    before_bytes: Count | None = None
    swing_bytes: Count | None = None


class LiveBytes(msgspec.Struct):
    """What `live_bytes` counted when the last recorded step was over."""

    total: Count
    parameters: Count
    gradients: Count
    optimizer_state: Count
    inputs: Count


class Timeline(msgspec.Struct):
    """The shape of an operation timeline: ranks are replicas times stages."""

    dp: Ranks
    pp: Ranks


class Extra(msgspec.Struct):
    """Those entries of ``TraceMeta.extra`` that somebody asks for."""

    own_rank: bool | None = None
    origin_ns: Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)] | None = None
    memory: Memory | None = None
    live_bytes: LiveBytes | None = None
    timeline: Timeline | None = None
    job: Text | None = None
    parameters: list[Sized] | None = None
    buffers: list[Sized] | None = None
    optimizer_step_ns: list[Nanoseconds] | None = None


class Facts(msgspec.Struct):
    """What the recorder found out about a job: fields of `TraceMeta` that no trace says."""

    framework: Text | None = None
    command: Text | None = None
    batch_size: Size | None = None
    optimizer: Optimizer | None = None
    loader: Loader | None = None
    machine: Machine | None = None
    unprofiled_step_ns: list[Nanoseconds] = []
    profiled_step_ns: list[Nanoseconds] = []
    warnings: dict[Text, Count] = {}
    extra: Extra = msgspec.field(default_factory=Extra)


class StoredMeta(Facts, kw_only=True):
    """A `TraceMeta`."""

    format: Text
    source: Text = ""
    devices: Annotated[list[StoredDevice], msgspec.Meta(max_length=2**15)] = []
    ranks: Annotated[list[Rank], msgspec.Meta(min_length=1, max_length=2**15)] = msgspec.field(
        default_factory=lambda: [0]
    )
    world_size: Ranks | None = None


class Envelope(msgspec.Struct):
    """What stands around the metadata."""

    version: Annotated[int, msgspec.Meta(ge=0)]
    meta: dict[str, Any]


def read_meta(text: bytes, source: str) -> TraceMeta:
    """Return the metadata of a recording of our own from the JSON in its file.

    Raises
    ------
    TraceError
        Something in it is of the wrong type or out of bounds, or a newer version wrote it.
    """
    try:
        envelope = msgspec.json.decode(text, type=Envelope)
        if envelope.version > VERSION:
            raise TraceError(
                f"{source}: written by a newer Foretrace (format {envelope.version}, this one "
                f"reads {VERSION}); upgrade"
            )
        _check(envelope.meta, StoredMeta)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{source}: damaged Parquet file (metadata: {error}); import it again"
        ) from None
    values = {f.name: envelope.meta[f.name] for f in dataclasses.fields(TraceMeta)
              if f.name in envelope.meta}  # fmt: skip
    names = {f.name for f in dataclasses.fields(Device)}
    values["devices"] = tuple(
        Device(**{name: value for name, value in device.items() if name in names})
        for device in values.get("devices", ())
    )
    values["ranks"] = tuple(values.get("ranks", (0,)))
    for name in ("unprofiled_step_ns", "profiled_step_ns"):
        values[name] = tuple(values.get(name, ()))
    return TraceMeta(**values)


def check_facts(facts: Any) -> None:
    """Raise unless *facts* are what the recorder may say of a job.

    Raises
    ------
    msgspec.ValidationError
        Something is of the wrong type or out of bounds; the text says what.
    """
    _check(facts, Facts)


def _check(values: Any, kind: type[Facts]) -> None:
    found = msgspec.convert(values, kind)
    unknown = [name for name in found.warnings if name not in BY_NAME]
    if unknown:  # a later version may count more: its sentences are not known here
        for name in unknown:
            del values["warnings"][name]
    if isinstance(found, StoredMeta) and len(set(found.ranks)) < len(found.ranks):
        raise msgspec.ValidationError("a rank is named twice - at `$.ranks`")
