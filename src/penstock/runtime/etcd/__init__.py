"""Metadata store of a cluster: etcd, through its JSON gateway (ADR 0010)."""
