"""Units of work, and clusters that are not there."""

from __future__ import annotations

import pytest

from foretrace.batch import pool as batch_pool
from foretrace.batch.items import Recording, make_items
from foretrace.batch.pool import UNIT, all_cores, group_by_recording, open_workers
from foretrace.errors import TransformError

pytest.importorskip("joblib", reason="the optional extra batch is not installed")


def test_units_are_of_one_recording() -> None:
    """In order, a few items each; what belongs together stays together."""
    first, second = (Recording(name, name, (name,), problem="x") for name in "ab")
    scenarios = [(f"faster_host(speedup={n})",) for n in range(1, UNIT + 2)]
    items = [
        *make_items(first, scenarios),
        *make_items(second, scenarios[:1]),
        *make_items(first, [("amp",)]),
    ]
    found = group_by_recording(items)

    assert [len(unit) for unit in found] == [UNIT, 2, 1]
    assert [unit[0].recording.name for unit in found] == ["a", "a", "b"]


def test_there_are_two_workers_at_least() -> None:
    """One would be this process."""
    assert all_cores() >= 2


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one, and how to get it."""
    for backend, library in (("loky", "no_such_library"), ("ray", "no_such_library")):
        monkeypatch.setitem(batch_pool.NEEDED, backend, library)
        with (
            pytest.raises(TransformError, match=f"batch on {backend} needs no_such_library: pip"),
            open_workers(backend, None),
        ):
            pass


@pytest.mark.filterwarnings("ignore")  # of Dask itself
def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens there, or it is no address at all."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(batch_pool, "CONNECT_SECONDS", 0.2)
    for address in ("tcp://127.0.0.1:9", "nowhere://x"):
        with (
            pytest.raises(TransformError, match=f"no Dask scheduler answers at {address}"),
            open_workers("dask", address),
        ):
            pass


def test_an_address_is_tried_before_ray_is() -> None:
    """Ray itself would try for minutes; what has no port is Ray's affair."""
    for address in ("127.0.0.1:9", "ray://127.0.0.1:9"):
        with pytest.raises(ConnectionRefusedError):
            batch_pool._connect(address)
    batch_pool._connect("auto")
