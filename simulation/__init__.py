"""Simulated versions of the ports, and the seeded event loop that runs the real node code.

Deterministic: the same seed gives the same run, byte for byte. Used only by tests of this
repository; not part of the wheel.
"""
