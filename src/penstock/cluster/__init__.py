"""The node's part of a cluster: metadata image, configs, topics, controller, replication, storage.

Metadata lives in a `Store`; records live in `penstock.log`.
"""
