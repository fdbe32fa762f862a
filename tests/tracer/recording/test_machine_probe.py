"""What a machine can do is measured beside the job, not inside it."""

from __future__ import annotations

import platform
import sys

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.recording import machine_probe
from foretrace.tracer.recording.machine_probe import cores, probe, probe_again
from tests.support.processes import python

pytest.importorskip("torch")

MAPPED = """
import ctypes
from foretrace.tracer.recording.machine_probe import probe

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks".split()]
    _fields_ += [("rest", ctypes.c_size_t * 6)]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Heap
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]

def is_mapped():
    before = libc.mallinfo2().hblks
    libc.malloc(12 << 20)
    return libc.mallinfo2().hblks > before

import torch
first = is_mapped()
probe()
print(first, is_mapped())
"""
"""The allocator maps a large block of its own until it has seen one as large freed."""


def test_the_probe_measures_every_rate() -> None:
    """All rates are positive, and a second call costs nothing and says the same."""
    found = probe()
    rates = [v for k, v in found.items() if k.endswith(("gflops", "gbps"))]
    assert len(rates) == 8
    assert min(rates) > 0
    assert found["cores"] == cores()
    assert found == probe()


def test_a_second_probe_keeps_the_faster_rates() -> None:
    """No rate is below the first measurement's, and both are compared."""
    first = probe()
    both, off = probe_again()
    assert all(both[k] >= v for k, v in first.items() if k.endswith(("gflops", "gbps")))
    assert both["products"]["linear"]["fp32"][0][0] == first["products"]["linear"]["fp32"][0][0]
    assert off >= 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells of glibc's allocator")
def test_the_allocator_of_the_jobs_process_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large block is still fetched from the system after a probe, as in a plain run."""
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"):
        monkeypatch.delenv(name, raising=False)
    with python("-c", MAPPED) as process:
        told, _ = process.communicate()
    assert told.split() == ["True", "True"]


def test_a_machine_that_cannot_be_measured_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interpreter to start, or one that fails."""
    for interpreter in ("/nowhere/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", interpreter)
        with pytest.raises(RecordError, match="the machine's rates could not be measured"):
            machine_probe._rates.__wrapped__(1, 1, 0)
