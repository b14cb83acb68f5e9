"""Schema registry as a state machine without I/O: schemas, ids, versions and compatibility."""
