"""What the nodes agree on, and the partitions this node leads: metadata image, configs, topics.

Single-node today; elections, replication and reassignment slot in here. Metadata lives in a
`Store`; records live in `penstock.log`.
"""
