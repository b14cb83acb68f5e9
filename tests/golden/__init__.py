"""Golden bytes of everything that is persisted or travels between nodes.

Each `test_*.py` here builds sample values of one family, encodes them with the code under test and
compares the bytes with those in `<family>.json`; the stored bytes are then decoded and compared
with the value. Samples have names of their own, never those of classes or modules, so a rename
leaves the files as they are: a test that fails after a rename found a change of format.

`python -m tests.golden.write` adds samples that are new. It refuses to change or remove stored
bytes without `--change`, and to run in CI.
"""
