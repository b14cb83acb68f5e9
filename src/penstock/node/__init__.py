"""Node: its configuration, its start and stop, and the composition root."""
