"""Kafka wire protocol without sockets: encodes and decodes messages and record batches.

`schema` declares messages, `reader_source` and `writer_source` generate their code, `codec`
compiles and caches it. `messages` holds the declarations, and `framing` adds headers. `records` and
`compression` handle record batches. Everything here is a pure function of its arguments.
"""
