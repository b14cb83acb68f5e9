"""Authentication, authorization, quotas and encryption keys: pure rules, without I/O."""
