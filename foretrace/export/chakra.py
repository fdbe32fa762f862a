"""A replay in, a Chakra execution trace per rank out, as MLCommons' schema of version 0.0.4 has it.

Chakra knows nodes that start when others have ended. What our graph says more precisely becomes:
a launch's *start* releases its kernel: the kernel depends on the launch; a call *ends* with the
work that it waits for: what follows the call depends on that work; time that must pass between two
tasks: a node of its own. Exact times stand in the attribute ``duration_ns``.
"""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.export.pftrace import check_perfetto
from foretrace.export.tracks import as_strings
from foretrace.graph.model import DEVICE_KINDS
from foretrace.transforms.distributed.common.collective_tasks import kind_of
from foretrace.transforms.edit.columns import is_in
from foretrace.util.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from foretrace.graph.model import Graph
    from foretrace.replaying.timeline import Timeline

VERSION = "0.0.4"
PACKAGE = "ChakraProtoMsg"
MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "AttributeProto": (
        ("name", 1, "string", False),
        ("int64_val", 9, "int64", False),
        ("bool_val", 27, "bool", False),
        ("string_val", 29, "string", False),
    ),
    "GlobalMetadata": (("version", 1, "string", False), ("attr", 2, "AttributeProto", True)),
    "Node": (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("attr", 10, "AttributeProto", True),
    ),
}
"""What is written of et_def.proto: message → (field, number, type, whether it repeats)."""
COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
"""Node types of the schema."""
COMM_TYPES = {
    "all_reduce": 0,
    "all_gather": 2,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
}
"""CollectiveCommType of the schema by kind of collective; others are written without one."""
_NS_PER_US = 1_000


def export_chakra(timeline: Timeline, path: Path) -> list[Path]:
    """Write the graph of *timeline* and its times to *path*; return the files written.

    Several ranks go to a file each, as Chakra has it: ``job.et`` becomes ``job.0.et`` and so on.

    Raises
    ------
    ForetraceError
        Protobuf's package is not installed.
    """
    check_perfetto()
    ranks = np.unique(timeline.graph.lanes["rank"].to_numpy()).tolist()
    single = len(ranks) == 1
    written = {r: path if single else path.with_suffix(f".{r}{path.suffix}") for r in ranks}
    for rank, place in written.items():
        write_atomically(place, execution_trace(timeline, rank))
    return list(written.values())


def execution_trace(timeline: Timeline, rank: int) -> bytes:
    """Return the trace of *rank*: metadata, then a node per task and per pause."""
    from google.protobuf.proto import serialize_length_prefixed

    out = io.BytesIO()
    metadata = messages()["GlobalMetadata"](version=VERSION)
    _attribute(metadata, "source", timeline.graph.meta.source.encode(errors="replace").decode())
    serialize_length_prefixed(metadata, out)
    for node in nodes(timeline, rank):
        serialize_length_prefixed(node, out)
    return out.getvalue()


def nodes(timeline: Timeline, rank: int) -> Iterator[Any]:
    """Yield the nodes of *rank* in order of time; a task's id is its row."""
    graph = timeline.graph
    tasks = graph.tasks
    own = (graph.lanes["rank"] == rank).to_numpy()[tasks["lane"].to_numpy()]
    control, data, pauses = _dependencies(graph, own)
    names, kinds = as_strings(tasks["name"]), as_strings(tasks["kind"])
    sizes, start, end = tasks["bytes"].tolist(), timeline.start_ns, timeline.end_ns
    order = np.lexsort((end, start))
    for row in order[own[order]].tolist():
        yield from (_pause(*each) for each in pauses.get(row, ()))
        node = _node(row, names[row] or "?", int(start[row]), int(end[row] - start[row]))
        node.ctrl_deps.extend(control.get(row, ()))
        node.data_deps.extend(data.get(row, ()))
        _attribute(node, "is_cpu_op", kinds[row] not in DEVICE_KINDS)
        if kinds[row] in ("collective", "p2p"):
            _communicates(node, str(kinds[row]), names[row] or "", sizes[row])
        yield node


def _dependencies(
    graph: Graph, own: np.ndarray
) -> tuple[dict[int, list[int]], dict[int, list[int]], dict[int, list[tuple[int, int, int]]]]:
    """Return what each task depends on: control, data, and pauses (id, task before, ns)."""
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    inside = (edges["shift"] == 0).to_numpy() & own[src] & own[dst]
    is_return, is_launch = (is_in(edges["kind"], kind) for kind in ("return", "launch"))
    awaited: dict[int, list[int]] = {}
    for row in np.flatnonzero(inside & is_return).tolist():
        awaited.setdefault(int(dst[row]), []).append(int(src[row]))
    control: dict[int, list[int]] = {}
    data: dict[int, list[int]] = {}
    pauses: dict[int, list[tuple[int, int, int]]] = {}
    lags = edges["lag_ns"].to_numpy()
    for row in np.flatnonzero(inside & ~is_return).tolist():
        before, after = int(src[row]), int(dst[row])
        if is_launch[row]:
            data.setdefault(after, []).append(before)
            continue
        data.setdefault(after, []).extend(awaited.get(before, ()))
        if lags[row] > 0:
            pause = len(own) + row
            pauses.setdefault(after, []).append((pause, before, int(lags[row])))
            before = pause
        control.setdefault(after, []).append(before)
    return control, data, pauses


def _node(number: int, name: str, start_ns: int, length_ns: int) -> Any:
    node = messages()["Node"](
        id=number,
        name=name,
        type=COMP,
        start_time_micros=max(start_ns, 0) // _NS_PER_US,
        duration_micros=round(length_ns / _NS_PER_US),
    )
    _attribute(node, "duration_ns", length_ns)
    return node


def _pause(number: int, before: int, length_ns: int) -> Any:
    """Return a node for time that must pass after task *before*."""
    node = _node(number, "pause", 0, length_ns)
    node.ctrl_deps.append(before)
    _attribute(node, "is_cpu_op", True)
    return node


def _communicates(node: Any, kind: str, name: str, size: float) -> None:
    """Turn *node* into one of communication; NCCL's SendRecv does not say which it is: a send."""
    comm_type = COMM_TYPES.get(kind_of(name) or "")
    if kind == "p2p":
        node.type = RECV if "recv" in name.lower() and "send" not in name.lower() else SEND
    else:
        node.type = COLLECTIVE
    if kind != "p2p" and comm_type is not None:
        _attribute(node, "comm_type", comm_type)
    if not np.isnan(size):
        _attribute(node, "comm_size", int(size))


def _attribute(message: Any, name: str, value: bool | int | str) -> None:  # noqa: FBT001
    field = {bool: "bool_val", int: "int64_val", str: "string_val"}[type(value)]
    message.attr.add(name=name, **{field: value})


@cache
def messages() -> dict[str, Any]:
    """Return the message classes of the schema by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="foretrace/et_def.proto", package=PACKAGE, syntax="proto3"
    )
    for message, fields in MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, repeats in fields:
            field = declared.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if repeats else kinds.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if name.endswith("_val"):
                field.oneof_index = 0
        if message == "AttributeProto":
            declared.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptors = (pool.FindMessageTypeByName(f"{PACKAGE}.{message}") for message in MESSAGES)
    return dict(zip(MESSAGES, map(message_factory.GetMessageClass, descriptors), strict=True))
