"""What machines cost: a price list in TOML.

In: a file. Out: kinds of machines that may be rented, each with its price, how many of them to
consider, and what joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from foretrace.util.toml_file import read_toml

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 1e9
Count = Annotated[int, msgspec.Meta(ge=1)]
Counts = Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)]


class RentalMachine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of machine that trains.

    ``count`` lists how many of them to consider. ``network`` is the rate of a machine with one
    device; ``cluster``, a preset or a file, describes others, with ``devices`` of each in use.
    ``what_if`` lists what-ifs that turn the recorded machine into this one.
    """

    name: str
    price_per_hour: float
    count: Counts
    devices: Count | None = None
    network: str | None = None
    cluster: str | None = None
    what_if: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be rented."""
        check_price(self.name, self.price_per_hour)
        if self.network is None and self.cluster is None:
            raise ValueError(f'{self.name}: nothing joins the machines; give network="25Gbps"')
        if self.cluster is None and (self.devices or 1) > 1:
            raise ValueError(f"{self.name}: say with cluster=... what joins its {self.devices}")


class RentalServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of machine that serves parameters; ``count`` as for `Machine`."""

    name: str
    price_per_hour: float
    count: Counts

    def __post_init__(self) -> None:
        """Refuse what cannot be rented."""
        check_price(self.name, self.price_per_hour)


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price list, all prices in one ``currency``."""

    machine: Annotated[tuple[RentalMachine, ...], msgspec.Meta(min_length=1)]
    server: tuple[RentalServer, ...] = ()
    currency: str = "USD"


def read_prices(path: Path) -> Prices:
    """Read the price list at *path*.

    Raises
    ------
    RefusedError
        It is no TOML, misses a value, has an unknown key, or a price is not above 0.
    """
    return read_toml(path, Prices)


def check_price(name: str, price: float) -> None:
    """Refuse what is no price of the machine *name*.

    Raises
    ------
    ValueError
        It is not above 0, no number, or absurdly high.
    """
    if not 0 < price <= LARGEST:
        legal = f"a number above 0 up to {LARGEST:g}"
        raise ValueError(f"{name}: price_per_hour={price} is no price; give {legal}")
