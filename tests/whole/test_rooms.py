"""The drawing of the rooms, and what would hide an arrow from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docs.rooms import late_imports, main, read_rooms
from docs.rooms_drawing import draw_rooms
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.rooms import Room


def within(room: Room) -> Iterator[Room]:
    """Yield *room* and all rooms in it."""
    yield room
    for row in room.rows:
        for each in row:
            yield from within(each)


def test_every_package_is_a_room() -> None:
    """A folder with code is drawn, with what lies in it."""
    rooms = {room.name: room for room in within(read_rooms())}
    folders = ("foretrace/transforms/distributed/ddp", "foretrace/tracer/readers/kineto")

    for folder in folders:
        modules = [*ROOT.joinpath(folder).glob("*.py")]
        room = rooms[folder.replace("/", ".")]
        assert room.modules == len(modules)
        assert room.lines == sum(len(m.read_text("utf-8").splitlines()) for m in modules)


def test_rooms_stand_above_what_they_import() -> None:
    """No arrow leads to a row above, or to its own."""
    for room in within(read_rooms()):
        row = {each.name: at for at, each_row in enumerate(room.rows) for each in each_row}
        assert all(row[importer] < row[imported] for importer, imported in room.arrows)


def test_arrows_are_drawn_downwards() -> None:
    """Each path begins above its end."""
    paths = re.findall(r'<path d="M[-.\d]+ ([-.\d]+).* ([-.\d]+)" marker-end', draw_rooms())

    assert len(paths) > 20
    assert all(float(begin) < float(end) for begin, end in paths)


def test_own_modules_are_imported_at_the_top() -> None:
    """Whatever the way of writing it; other libraries may be loaded late."""
    text = (
        "import foretrace.graph\n"
        "def f():\n"
        "    import torch\n"
        "    import foretrace.tracer as t\n"
        "    async def g():\n"
        "        from foretrace.errors import TraceError\n"
        "        from . import x\n"
    )

    assert late_imports(text) == [
        (4, "import foretrace.tracer as t"),
        (6, "from foretrace.errors import TraceError"),
        (7, "from . import x"),
    ]


def test_no_module_imports_another_late() -> None:
    """As ``make lint`` asks."""
    assert main() == 0
