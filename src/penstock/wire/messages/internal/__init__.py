"""Penstock's own messages, for its tools and between its nodes (API keys from 30000)."""
