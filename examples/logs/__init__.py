"""Log aggregation: lines of text from many services, counted by service, level and minute."""
