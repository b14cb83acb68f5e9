"""Encryption at rest of one log: its root key, sealed batches, and reading them (ADR 0019)."""
