"""Real versions of the ports: disk, clock, randomness, worker threads, metadata stores.

Only the composition root (`penstock.node`) and the command line import this package; all other code
uses `penstock.base.ports`. The simulated versions are in `simulation`.
"""
