"""The shell around the machines: hosts groups and transactions on replicated internal topics."""
