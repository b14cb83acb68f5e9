"""The simulated versions of the ports, and the seeded event loop the real node code runs on.

Everything here is deterministic: the same seed gives the same run, byte for byte. It ships with
the package so that users can test against a broker in memory too.
"""
