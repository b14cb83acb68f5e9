"""Logins, passwords, keys and certificates of a node, set up before the first port opens."""
