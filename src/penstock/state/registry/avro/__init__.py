"""Avro schemas: read, written in one way, and compared as reader and writer (Avro 1.12)."""
