"""Protobuf schemas: texts and descriptors, read, linked, written in one way, and compared.

Needs the package `protobuf` (`pip install penstock-mq[registry]`) for its descriptors and the files
of Google's well-known types; the language itself is read here.
"""
