"""Configs of topics, brokers and groups: the table, their types, resolution and changes."""
