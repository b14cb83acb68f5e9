"""Avro schemas: parsed, written in canonical form, compared as reader and writer (Avro 1.12)."""
