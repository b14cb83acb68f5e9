"""Benchmarks of Penstock and its peers; `make bench` runs the main ones."""
