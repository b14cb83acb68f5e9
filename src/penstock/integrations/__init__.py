"""Transports of other task libraries on Penstock's queues, each behind an extra of its own.

They use `penstock.app` as applications do, and know nothing of the broker.
"""
