"""Price lists: what may be rented, and one sentence for what may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import RefusedError
from foretrace.job.prices import RentalMachine, RentalServer, read_prices

if TYPE_CHECKING:
    from pathlib import Path

LIST = """
currency = "EUR"

[[machine]]
name = "small"
price_per_hour = 0.5
count = [1, 2]
network = "10Gbps"

[[server]]
name = "ps"
price_per_hour = 0.1
count = [1]
"""


def listed(folder: Path, text: str) -> Path:
    """Write *text* as a price list."""
    path = folder / "prices.toml"
    path.write_text(text, "utf-8")
    return path


def test_machines_and_servers_are_read(tmp_path: Path) -> None:
    """Every kind with its price, how many of it, and its network."""
    found = read_prices(listed(tmp_path, LIST))

    assert found.machine == (RentalMachine("small", 0.5, (1, 2), network="10Gbps"),)
    assert found.server == (RentalServer("ps", 0.1, (1,)),)
    assert found.currency == "EUR"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("= 0.5", "= 0", "small: price_per_hour=0.0 is no price; give a number above 0 up to"),
        ("= 0.5", "= nan", "small: price_per_hour=nan is no price"),
        ("= 0.5", '= "much"', r"Expected `float`, got `str` - at `\$.machine\[0\].price_per_hour`"),
        ("= 0.1", "= -1", "ps: price_per_hour=-1.0 is no price"),
        ("[1, 2]", "[]", "at `\\$.machine\\[0\\].count`"),
        ("[1, 2]", "[0]", "at `\\$.machine\\[0\\].count"),
        ('network = "10Gbps"', "", 'small: nothing joins the machines; give network="25Gbps"'),
        (
            'network = "10Gbps"',
            'network = "10Gbps"\ndevices = 4',
            "say with cluster=... what joins",
        ),
        ("count = [1, 2]", "count = [1, 2]\nprize = 1", "unknown field `prize`"),
        ("currency =", "currency", "prices.toml: "),
    ],
)
def test_what_cannot_be_rented_gets_one_sentence(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    """The text names the machine or the place in the file."""
    with pytest.raises(RefusedError, match=said):
        read_prices(listed(tmp_path, LIST.replace(old, new)))


def test_a_list_without_machines_is_refused(tmp_path: Path) -> None:
    """Servers alone train nothing."""
    with pytest.raises(RefusedError, match="missing required field `machine`"):
        read_prices(listed(tmp_path, 'currency = "USD"'))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """The text names the file."""
    path = tmp_path / "prices.toml"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(RefusedError, match=r"prices\.toml: "):
        read_prices(path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Some editors begin every file with one."""
    assert read_prices(listed(tmp_path, "\ufeff" + LIST)).currency == "EUR"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"a = '\xe4'", "no text in UTF-8"), (b"a = " + b"[" * 100_000, "nested too deeply")],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes, said: str) -> None:
    """Another encoding, and brackets without end."""
    path = tmp_path / "prices.toml"
    path.write_bytes(content)

    with pytest.raises(RefusedError, match=said):
        read_prices(path)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    """The text names it."""
    with pytest.raises(RefusedError, match=r"none\.toml: cannot be read"):
        read_prices(tmp_path / "none.toml")
