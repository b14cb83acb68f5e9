"""Pairs of Protobuf schemas and what Confluent's rules say of them.

Each row: what changed, the old schema, the new one, whether the new reads what the old wrote, and
whether the old reads what the new writes. Where nothing else is said, both are proto3.
"""

Row = tuple[str, str, str, bool, bool]

TWO = 'syntax = "proto2"; '


def message(body: str, rest: str = "") -> str:
    return f'syntax = "proto3"; message M {{ {body} }} {rest}'


def required(body: str) -> str:
    return f"{TWO}message M {{ {body} }}"


STAMP = 'import "google/protobuf/timestamp.proto"; '

PAIRS: list[Row] = [
    ("nothing", message("string a = 1;"), message("string a = 1;"), True, True),
    ("comments and blanks", message("string a = 1;"), message("/* x */ string  a = 1; // y\n"),
     True, True),
    ("the package changes", 'syntax = "proto3"; package x; message M { }',
     'syntax = "proto3"; package y; message M { }', False, False),
    # Messages and enums.
    ("a message is added", message(""), message("", "message O { }"), True, False),
    ("a nested message is added", message(""), message("message O { }"), True, False),
    ("messages change places", message("", "message O { }"),
     'syntax = "proto3"; message O { } message M { }', True, True),
    ("an enum is added", message(""), message("", "enum E { X = 0; }"), True, True),
    ("a constant is added", message("", "enum E { X = 0; }"),
     message("", "enum E { X = 0; Y = 1; }"), True, True),
    ("a constant is renamed", message("", "enum E { X = 0; }"),
     message("", "enum E { Z = 0; }"), True, True),
    # Fields.
    ("a field is added", message("string a = 1;"), message("string a = 1; int32 b = 2;"),
     True, True),
    ("a field is renamed", message("string a = 1;"), message("string z = 1;"), True, True),
    ("fields change places", message("string a = 1; int32 b = 2;"),
     message("int32 b = 2; string a = 1;"), True, True),
    ("numbers are exchanged", message("string a = 1; int32 b = 2;"),
     message("string a = 2; int32 b = 1;"), False, False),
    ("a required field is added", required("optional string a = 1;"),
     required("optional string a = 1; required string b = 2;"), False, False),
    ("an optional field of proto2 is added", required("optional string a = 1;"),
     required("optional string a = 1; optional string b = 2;"), True, True),
    ("a number is reserved", message("string a = 1;"), message("string a = 1; reserved 9;"),
     True, True),
    # Types of fields.
    ("int32 to int64", message("int32 a = 1;"), message("int64 a = 1;"), True, True),
    ("int32 to uint64", message("int32 a = 1;"), message("uint64 a = 1;"), True, True),
    ("int32 to bool", message("int32 a = 1;"), message("bool a = 1;"), True, True),
    ("int32 to sint32", message("int32 a = 1;"), message("sint32 a = 1;"), False, False),
    ("sint32 to sint64", message("sint32 a = 1;"), message("sint64 a = 1;"), True, True),
    ("int32 to fixed32", message("int32 a = 1;"), message("fixed32 a = 1;"), False, False),
    ("fixed32 to sfixed32", message("fixed32 a = 1;"), message("sfixed32 a = 1;"), True, True),
    ("fixed32 to fixed64", message("fixed32 a = 1;"), message("fixed64 a = 1;"), False, False),
    ("fixed64 to sfixed64", message("fixed64 a = 1;"), message("sfixed64 a = 1;"), True, True),
    ("float to double", message("float a = 1;"), message("double a = 1;"), False, False),
    ("string to bytes", message("string a = 1;"), message("bytes a = 1;"), True, True),
    ("string to int32", message("string a = 1;"), message("int32 a = 1;"), False, False),
    ("int32 to an enum", message("int32 a = 1;", "enum E { X = 0; }"),
     message("E a = 1;", "enum E { X = 0; }"), True, True),
    ("string to a message", message("string a = 1;", "message O { }"),
     message("O a = 1;", "message O { }"), False, False),
    ("a message to another", message("O a = 1;", "message O { } message P { }"),
     message("P a = 1;", "message O { } message P { }"), False, False),
    ("a message's field changes", message("O a = 1;", "message O { string b = 1; }"),
     message("O a = 1;", "message O { int32 b = 1; }"), False, False),
    ("a message's field is added", message("O a = 1;", "message O { string b = 1; }"),
     message("O a = 1;", "message O { string b = 1; string c = 2; }"), True, True),
    # Labels.
    ("a string becomes repeated", required("optional string a = 1;"),
     required("repeated string a = 1;"), True, True),
    ("a number becomes repeated", required("optional int32 a = 1;"),
     required("repeated int32 a = 1;"), False, False),
    ("a plain field becomes optional", message("string a = 1;"),
     message("optional string a = 1;"), True, True),
    # Maps.
    ("a map's values widen", message("map<string, int32> a = 1;"),
     message("map<string, int64> a = 1;"), True, True),
    ("a map's values change", message("map<string, int32> a = 1;"),
     message("map<string, string> a = 1;"), False, False),
    ("a map's keys change", message("map<string, int32> a = 1;"),
     message("map<int32, int32> a = 1;"), False, False),
    ("a map becomes a number", message("map<string, int32> a = 1;"), message("int32 a = 1;"),
     False, False),
    # Oneofs.
    ("a oneof is added", message("string a = 1;"),
     message("string a = 1; oneof o { string b = 2; }"), True, True),
    ("a field is added to a oneof", message("oneof o { string a = 1; }"),
     message("oneof o { string a = 1; string b = 2; }"), True, False),
    ("a field moves into a new oneof", message("string a = 1;"),
     message("oneof o { string a = 1; string b = 2; }"), True, False),
    ("two fields move into a oneof", message("string a = 1; string b = 2;"),
     message("oneof o { string a = 1; string b = 2; }"), False, True),
    ("a field moves into a oneof that was there",
     message("string a = 1; oneof o { string b = 2; }"),
     message("oneof o { string a = 1; string b = 2; }"), False, True),
    ("a oneof is renamed", message("oneof o { string a = 1; string b = 2; }"),
     message("oneof p { string a = 1; string b = 2; }"), True, True),
    # Imports.
    ("a well-known type is imported", message("string a = 1;"),
     f'syntax = "proto3"; {STAMP}message M {{ string a = 1; google.protobuf.Timestamp t = 2; }}',
     True, True),
    ("a well-known type becomes a string",
     f'syntax = "proto3"; {STAMP}message M {{ google.protobuf.Timestamp t = 2; }}',
     message("string t = 2;"), False, False),
    ("options change", 'syntax = "proto3"; option java_package = "x"; message M { }',
     'syntax = "proto3"; option java_package = "y"; message M { }', True, True),
]  # fmt: skip
