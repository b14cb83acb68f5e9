"""Replicas on this node: partitions, ISR, fetchers, followers and high watermarks."""
