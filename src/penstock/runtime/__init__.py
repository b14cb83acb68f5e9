"""The real versions of the ports: disk, clock, randomness, worker threads, embedded store.

Only the composition root (`penstock.node`) and the command line import this package; all else
sees `penstock.base.ports`. The simulated versions are in `simulation`.
"""
