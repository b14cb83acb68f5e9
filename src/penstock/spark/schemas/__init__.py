"""Values of records as columns, and back: Avro, JSON Schema and Protobuf with a schema registry.

`frames` is what users call; `book` asks the registry; `cells` goes through an Arrow column; one
module for each format makes Spark's types and the functions that read and write one value.
"""
