"""Removal of old records: retention by age and size, and compaction by key."""
