"""Consumer and share groups with their committed offsets, as state machines without I/O.

`shard.GroupShard` is the entry point: the host passes it requests, records and the time. Below it
are one object per group (`classic`, `consumer`, `share`), committed offsets (`offsets`) and
the records that all of them are rebuilt from (`records`). Imports only `base` and `wire`.
"""
