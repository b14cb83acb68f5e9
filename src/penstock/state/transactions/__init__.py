"""Transaction coordinator as a pure state machine (KIP-98, 360, 588, 890, 1228)."""
