"""Consumer groups and their offsets, as machines without I/O.

`shard.GroupShard` is the door: the host gives it requests, records and the time. Below it are one
object per group (`classic`, `consumer`), the committed positions (`offsets`) and the records they
are all rebuilt from (`records`). Imports only `base` and `wire`.
"""
