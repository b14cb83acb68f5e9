"""Bytes to messages and back: the Kafka protocol without sockets.

`schema` declares, `reading` and `writing` derive the code, `codec` compiles and keeps it,
`messages` holds the declarations, `frame` puts headers around them; `records` and `compression`
know what is inside a record batch. Everything here is a pure function of its arguments.
"""
