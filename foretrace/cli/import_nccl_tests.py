"""``foretrace import-nccl-tests``: logs of nccl-tests in, one table of measured costs out."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foretrace.transforms.cluster.cost_tables import CollectiveTable, CostEntry


def import_nccl_tests(
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...", help="What nccl-tests printed, plain or gzipped; or such tables."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the table.")],
    cluster: Annotated[
        str | None,
        typer.Option(help="Preset or file of the cluster the logs are from; default: not said."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=2, help="How many ranks, where a log does not list them.")
    ] = None,
) -> None:
    """Turn logs of nccl-tests into a table of what collectives cost."""
    from foretrace.transforms.cluster.cost_tables import describe, write_table

    table = imported(logs, cluster=cluster, ranks=ranks)
    write_table(table, out)
    sys.stdout.write(f"wrote {out}: {describe(table)}\n")


def imported(
    logs: Sequence[Path], *, cluster: str | None = None, ranks: int | None = None
) -> CollectiveTable:
    """Return one table of all *logs*, which may be tables themselves; later files win.

    What could not be read is counted on stderr.

    Raises
    ------
    ForetraceError
        A file holds no results, or does not fit the cluster.
    """
    from foretrace.transforms.cluster.cost_tables import is_table, make_table, merge, read_table
    from foretrace.transforms.collectives.nccl_tests_log import read_log

    tables = []
    for path in logs:
        if is_table(path):
            tables.append(read_table(path))
            continue
        log = read_log(path, ranks=ranks)
        for reason, lines in sorted(log.left_out.items()):
            sys.stderr.write(f"foretrace: {path}: {lines} line(s) {reason}\n")
        tables.append(make_table(log.entries if cluster is None else _placed(log.entries, cluster)))
    return merge(tables)


def _placed(entries: Sequence[CostEntry], cluster: str) -> list[CostEntry]:
    """Return the entries with the topology that as many packed devices of *cluster* have."""
    from foretrace.transforms.cluster.presets import load_cluster
    from foretrace.transforms.cluster.topology import topology_of

    one = load_cluster(cluster)
    each = len(one.devices)
    found = []
    for entry in entries:
        machines = max(-(-entry.ranks // each), one.machines)
        whole = load_cluster(cluster, machines)
        topology = topology_of(whole, whole.packed(entry.ranks))
        found.append(entry._replace(topology=topology, device=entry.device or one.device))
    return found
