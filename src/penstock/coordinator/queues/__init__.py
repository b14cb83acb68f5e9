"""Queues at work: receive, settle, dead letters and state, wherever a partition is led."""
