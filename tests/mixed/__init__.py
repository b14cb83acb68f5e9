"""A cluster of two versions: one node of an older commit beside two of this one.

On demand, `python -m tests.mixed --old <commit>` or `make mixed OLD=<commit>`: it takes minutes and
a checkout of the older commit.
"""
