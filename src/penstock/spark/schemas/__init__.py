"""Values of records as columns, and back: Avro, JSON Schema and Protobuf with a schema registry.

`dataframes` is the public interface and converts Arrow columns; `schema_cache` queries the
registry; one module per format makes Spark's types and the functions for one value.
"""
