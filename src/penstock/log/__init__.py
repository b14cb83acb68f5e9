"""Partition log on disk: append, read, recover, retain, compact. See `log.log.Log`."""
