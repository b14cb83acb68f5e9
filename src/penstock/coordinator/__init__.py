"""Coordinators: run the state machines of groups, transactions and queues on internal topics."""
