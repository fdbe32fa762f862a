"""Clusters written down as files of their own."""

from __future__ import annotations

BOX = """
transport = "nccl"
devices = ["a", "b"]
machines = 2

[links.bus]
medium = "pcie"
gb_per_s = 10

[links.nic]
medium = "network"
gb_per_s = 5
latency_ns = 2000

[[wire]]
link = "bus"
pairs = [["a", "hub"], ["b", "hub"]]

[[wire]]
link = "nic"
count = 2
pairs = [["hub", "network"]]
"""
"""Two machines of two devices, each on a bus, with a card of two links."""
