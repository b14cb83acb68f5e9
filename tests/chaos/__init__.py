"""Real broker processes, killed, stopped and starved while real producers write to them."""
