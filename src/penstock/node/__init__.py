"""A node: its configuration and the one place where all parts are put together."""
