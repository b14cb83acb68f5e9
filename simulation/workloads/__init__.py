"""What simulated clients do, each kind in a file of its own; reusable for any cluster."""
