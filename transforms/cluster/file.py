"""The TOML form of a cluster: tables and figures in, a `Cluster` out, or one clear sentence.

A figure is a number, or ``{ value = ..., source = "..." }`` with the source's name in [sources].
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from foretrace.errors import TransformError
from foretrace.transforms.cluster.cost_tables import CollectiveTable, read_table
from foretrace.transforms.cluster.model import (
    MEDIA,
    OUTSIDE,
    TRANSPORTS,
    Cluster,
    Host,
    Level,
    Link,
    Start,
    positive,
)
from foretrace.util.text_file import is_file, parse_toml, read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


FOLDER = "clusters"
TABLES = (
    "about", "name", "device", "transport", "devices", "machines", "sources", "links", "wire",
    "level", "collectives", "host", "table",
)  # fmt: skip
LINK_KEYS = ("medium", "gb_per_s", "latency_ns", "efficiency", "spread", "burst_bytes")
WIRE_KEYS = ("link", "count", "pairs")
LEVEL_KEYS = ("name", "machines", "uplink", "count")
START_KEYS = ("base_us", "hop_us", "copy_gb_per_s")
HOST_KEYS = ("wake_us", "bucket_us", "contention")
CONTENTION_KEYS = ("gbit", "compute", "transfer")


def presets() -> tuple[str, ...]:
    """Return the names of the clusters that come with the package."""
    folder = files("foretrace.transforms.cluster").joinpath(FOLDER)
    return tuple(sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".toml")))


def read_cluster(name_or_path: str) -> Cluster:
    """Return the preset of that name, else what the file says; raises as `load_cluster` does."""
    if name_or_path in presets():
        return _preset(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".toml" and not is_file(path):
        near = get_close_matches(name_or_path, presets(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(presets())}"
        raise TransformError(f"no cluster is called {name_or_path!r}: {hint}")
    try:
        text = read_text(path, TransformError)
    except TransformError as error:
        raise TransformError(f"{error}; expected a cluster") from None
    return parse_cluster(text, path.stem, path.parent)


@cache
def _preset(name: str) -> Cluster:
    folder = files("foretrace.transforms.cluster").joinpath(FOLDER)
    text = folder.joinpath(f"{name}.toml").read_text("utf-8")
    return parse_cluster(text, name, Path(str(folder)))


def parse_cluster(text: str, name: str, folder: Path = Path()) -> Cluster:
    """Return the cluster that *text* describes; *name* serves where it names none.

    A table of collectives that it names lies in *folder*.
    """
    content = parse_toml(text, f"cluster {name!r} is no TOML", TransformError)
    return _Reader(content, str(content.get("name", name)), folder).cluster()


class _Reader:
    """One file: its tables, and the sources of the figures read so far."""

    def __init__(self, content: dict[str, Any], name: str, folder: Path) -> None:
        self.content = content
        self.name = name
        self.folder = folder
        self.sources: dict[str, str] = {}

    def cluster(self) -> Cluster:
        self.check_keys(self.content, TABLES, "the file")
        devices = self.devices()
        links = {name: self.link(name, row) for name, row in self.table_of("links", dict).items()}
        return Cluster(
            name=self.name,
            device=str(self.content.get("device", "")),
            transport=self.one_of("transport", self.content.get("transport"), TRANSPORTS),
            devices=devices,
            machine=self.machine(devices, links),
            machines=self.count(self.content.get("machines", 1), "machines"),
            levels=tuple(self.level(row, links) for row in self.table_of("level", list)),
            start=self.start(self.table_of("collectives", dict)),
            host=self.host(self.table_of("host", dict)),
            table=self.read_measured(self.content.get("table")),
            sources=self.sources,
        )

    def link(self, name: str, row: Any) -> Link:
        where = f"links.{name}"
        row = self.check_keys(row, LINK_KEYS, where)
        if "gb_per_s" not in row:
            raise self.error(f"{where} does not say its gb_per_s")
        figures: dict[str, Any] = {
            key: self.figure(row[key], f"{where}.{key}", may_be_zero=key != "gb_per_s")
            for key in LINK_KEYS[1:]
            if key in row
        }
        if not 0 < figures.get("efficiency", 1.0) <= 1:
            raise self.error(f"{where}.efficiency is {figures['efficiency']:g}, not in (0, 1]")
        for key in ("latency_ns", "burst_bytes"):
            figures[key] = int(figures.get(key, 0))
        medium = self.one_of(f"{where}.medium", row.get("medium"), MEDIA)
        return Link(name, medium, **figures)

    def devices(self) -> tuple[str, ...]:
        names = self.table_of("devices", list)
        for name in names:
            if not isinstance(name, str) or name == OUTSIDE:
                raise self.error(f"a device is called by a name of its own, not {name!r}")
            if names.count(name) > 1:
                raise self.error(f"devices has {name!r} more than once")
        return tuple(names)

    def machine(self, devices: tuple[str, ...], links: Mapping[str, Link]) -> nx.Graph:
        """Return the graph of one machine; several wires between two nodes add up."""
        graph = nx.Graph()
        graph.add_nodes_from(devices)
        for row in self.table_of("wire", list):
            wire = self.check_keys(row, WIRE_KEYS, "a wire")
            link = self.link_named(wire.get("link"), links, "a wire")
            count = self.count(wire.get("count", 1), "a wire's count")
            for pair in self.list_of(wire.get("pairs", []), "a wire's pairs"):
                if not _is_pair(pair):
                    raise self.error(f"a wire joins two nodes, not {pair!r}")
                if graph.has_edge(*pair):
                    raise self.error(f"{pair[0]!r} and {pair[1]!r} are wired twice; use count")
                graph.add_edge(*pair, link=link, count=count)
        return graph

    def level(self, row: Any, links: Mapping[str, Link]) -> Level:
        row = self.check_keys(row, LEVEL_KEYS, "a level")
        name = str(row.get("name", "switch"))
        return Level(
            name=name,
            machines=self.count(row.get("machines"), f"level {name!r}: machines"),
            uplink=self.link_named(row.get("uplink"), links, f"level {name!r}"),
            count=self.count(row.get("count", 1), f"level {name!r}: count"),
        )

    def start(self, row: Any) -> Start:
        row = self.check_keys(row, START_KEYS, "collectives")
        return Start(
            **{
                key: self.figure(value, f"collectives.{key}", may_be_zero=key != "copy_gb_per_s")
                for key, value in row.items()
            }
        )

    def host(self, row: Any) -> Host:
        row = self.check_keys(row, HOST_KEYS, "host")
        times = {
            key: self.figure(row[key], f"host.{key}", may_be_zero=True)
            for key in HOST_KEYS[:-1]
            if key in row
        }
        return Host(**times, contention=self.contention(row.get("contention", [])))

    def contention(self, rows: Any) -> tuple[tuple[float, float, float], ...]:
        speeds = []
        for row in self.list_of(rows, "host.contention"):
            where = "host.contention"
            table = self.check_keys(row, CONTENTION_KEYS, where)
            rate, compute, transfer = (
                self.figure(table.get(key), f"{where}.{key}", may_be_zero=False)
                for key in CONTENTION_KEYS
            )
            if max(compute, transfer) > 1:
                raise self.error(f"{where} at {rate:g} Gbit/s has a speed above 1")
            speeds.append((rate, compute, transfer))
        return tuple(sorted(speeds))

    def read_measured(self, name: Any) -> CollectiveTable | None:
        """Return the table of collectives that the file names, relative to itself."""
        if name is None:
            return None
        if not isinstance(name, str):
            raise self.error(f"table is {name!r}, expected the name of a file")
        if Path(name).name != name:
            raise self.error(f"table is {name!r}, expected the name of a file beside this one")
        return read_table(self.folder / name)

    def figure(self, given: Any, where: str, *, may_be_zero: bool) -> float:
        """Return a figure, and keep its source."""
        value = given
        if isinstance(given, dict):
            self.check_keys(given, ("value", "source"), where)
            value, source = given.get("value"), given.get("source")
            if not isinstance(source, str) or source not in self.table_of("sources", dict):
                raise self.error(f"{where} names the source {source!r}, which [sources] lacks")
            self.sources[where] = str(self.content["sources"][source])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"{where} is {value!r}, expected a number")
        if value == 0 and may_be_zero:
            return 0.0
        return positive(value, f"cluster {self.name!r}: {where}")

    def link_named(self, name: Any, links: Mapping[str, Link], where: str) -> Link:
        if not isinstance(name, str) or name not in links:
            raise self.error(f"{where} uses the link {name!r}, which [links] lacks")
        return links[name]

    def table_of(self, key: str, kind: type) -> Any:
        value = self.content.get(key, kind())
        if not isinstance(value, kind):
            raise self.error(f"{key} is not a {'list' if kind is list else 'table'}")
        return value

    def list_of(self, given: Any, what: str) -> list[Any]:
        if not isinstance(given, list):
            raise self.error(f"{what} is not a list")
        return given

    def count(self, given: Any, what: str) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise self.error(f"{what} is {given!r}, expected a whole number from 1 on")
        return given

    def one_of(self, what: str, given: Any, allowed: Collection[str]) -> str:
        if given not in allowed:
            raise self.error(f"{what} is {given!r}, not one of {', '.join(allowed)}")
        return str(given)

    def check_keys(self, row: Any, allowed: Collection[str], where: str) -> dict[str, Any]:
        """Return *row* if it is a table with no other keys than *allowed*."""
        if not isinstance(row, dict):
            raise self.error(f"{where} is not a table")
        for key in row:
            if key not in allowed:
                near = get_close_matches(key, allowed, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise self.error(f"{where} has the unknown key {key!r}{hint}")
        return row

    def error(self, text: str) -> TransformError:
        return TransformError(f"cluster {self.name!r}: {text}")


def _is_pair(given: Any) -> bool:
    """Tell whether *given* is a list of two different names."""
    return (
        isinstance(given, list)
        and [isinstance(name, str) for name in given] == [True, True]
        and given[0] != given[1]
    )
