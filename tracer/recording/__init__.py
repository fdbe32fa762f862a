"""The user's job in, a recorded `Trace` out: timed without the profiler, then profiled.

Imports torch where it is used, `readers` for what the profiler wrote, and util.
"""
