"""Measurements of Penstock beside its peers; `make bench` runs them all."""
