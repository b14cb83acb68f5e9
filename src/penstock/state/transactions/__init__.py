"""The transaction coordinator as a pure machine (KIP-98, KIP-360, KIP-588, KIP-890, KIP-1228)."""
