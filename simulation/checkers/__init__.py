"""What must hold whatever happens: each promise of RELIABILITY 1.3 under its name."""
