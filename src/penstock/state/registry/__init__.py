"""The schema registry as a machine without I/O: schemas, ids, versions, and who can read whom."""
