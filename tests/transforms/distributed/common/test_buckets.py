"""Buckets: torch's rule against what torch was seen to do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import TransformError
from foretrace.transforms.distributed.common.buckets import MIB, Caps, caps, fill_buckets

KIB = 1_024
CHANNELS = (3, 32, 64, 64, 128, 128, 256, 256, 256)
WIDTH, WORDS, TOKENS = 192, 2_000, 64


def kib(sizes: list[int], limits: Caps) -> list[int]:
    """Return the whole KiB of each bucket."""
    return [sum(sizes[i] for i in bucket) // KIB for bucket in fill_buckets(sizes, limits)]


def linear(inputs: int, outputs: int) -> list[int]:
    """Return the bytes of a linear layer's gradients: its bias is ready before its weight."""
    return [4 * outputs, 4 * outputs * inputs]


def convolutions() -> list[int]:
    """Return the gradients of 8 convolutions with norms and 100 classes, in order of readiness."""
    sizes = linear(CHANNELS[-1], 100)
    for outputs, inputs in pairwise(CHANNELS[::-1]):
        sizes += [4 * outputs, 4 * outputs, 4 * outputs * inputs * 9]
    return sizes


def transformer() -> list[int]:
    """Return the gradients of 4 blocks of width 192, in order of readiness."""
    norm = [4 * WIDTH, 4 * WIDTH]
    mlp = linear(4 * WIDTH, WIDTH) + linear(WIDTH, 4 * WIDTH) + norm
    attention = linear(WIDTH, WIDTH) + linear(WIDTH, 3 * WIDTH) + norm
    embeddings = [4 * TOKENS * WIDTH, 4 * WORDS * WIDTH]
    return linear(WIDTH, WORDS) + norm + (mlp + attention) * 4 + embeddings


def test_a_cap_of_one_mib_groups_the_convolutions_as_torch_did() -> None:
    """As read through a hook in torch 2.13; the last bucket is what was left."""
    assert kib(convolutions(), caps(1.0)) == [2_406, 2_306, 1_154, 1_083, 3]


def test_the_transformer_has_as_many_buckets_as_in_torch() -> None:
    """8 with a cap of one MiB; by default a small one and one that holds the rest."""
    assert len(kib(transformer(), caps(1.0))) == 8
    assert kib(transformer(), caps()) == [1_507, 8_500]


def test_an_explicit_cap_holds_for_the_first_bucket_too() -> None:
    """Since torch 2.4; earlier versions kept the first one small."""
    sizes = transformer()

    assert kib(sizes, caps(25.0)) == [10_008]
    assert kib(sizes, caps(25.0, framework="torch 2.13.0+cpu")) == [10_008]
    assert kib(sizes, caps(25.0, framework="torch 1.13.0a0")) == [1_507, 8_500]
    assert kib(sizes, caps(25.0, 1.0)) == [1_507, 8_500]


def test_a_tensor_is_never_split() -> None:
    """A layer over the cap is one bucket, together with its bias before it."""
    assert fill_buckets([*linear(512, 8_000), 100], caps(1.0)) == [[0, 1], [2]]


def test_types_have_buckets_and_caps_of_their_own() -> None:
    """Half-precision gradients do not count towards the bucket of the others."""
    assert fill_buckets([3, 3, 3, 3], Caps(4, 6), ["a", "b", "a", "b"]) == [[0, 2], [1, 3]]
    assert fill_buckets([4, 1, 4, 4, 1], Caps(4, 6), ["a", "b", "a", "a", "a"]) == [
        [0],
        [2, 3],
        [1],
        [4],
    ]


@given(st.lists(st.integers(1, 50_000_000), max_size=60), st.integers(1, 60))
def test_every_gradient_is_in_one_bucket_in_order(sizes: list[int], cap_mb: int) -> None:
    """Nothing is lost or moved; only its last tensor brings a bucket to its cap."""
    limits = caps(float(cap_mb), 1.0)
    buckets = fill_buckets(sizes, limits)

    assert [i for bucket in buckets for i in bucket] == list(range(len(sizes)))
    for place, bucket in enumerate(buckets):
        cap = limits.others if place else limits.first
        assert sum(sizes[i] for i in bucket[:-1]) < cap
        assert place == len(buckets) - 1 or sum(sizes[i] for i in bucket) >= cap


@pytest.mark.parametrize("cap", [0, -1, float("nan"), float("inf")])
def test_absurd_caps_are_refused(cap: float) -> None:
    """A bucket holds something."""
    with pytest.raises(TransformError, match="bucket_cap_mb"):
        caps(cap)
    with pytest.raises(TransformError, match="first_bucket_mb"):
        caps(None, cap)


def test_mib_is_what_torch_means_by_mb() -> None:
    """``bucket_cap_mb`` counts 2^20 bytes."""
    assert caps(2.0).others == 2 * MIB
