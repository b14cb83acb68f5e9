"""Checkers of invariants; each violation has the name of a promise in RELIABILITY 1.3."""
