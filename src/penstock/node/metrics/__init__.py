"""Metrics of a node that are read when they are scraped."""
