"""Housekeeping of the data directory: retention, compaction, orphaned files, disk pressure."""
