"""Execution of queues on partition leaders: receive, settle, dead letters and state."""
