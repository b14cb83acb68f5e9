"""Protobuf schemas: texts and descriptors, parsed, linked, printed canonically, and compared.

Needs the package `protobuf` (`pip install penstock-mq[registry]`) for descriptors and the files of
Google's well-known types; the parser of the language is our own.
"""
