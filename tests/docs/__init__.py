"""The documentation against the code it describes."""
