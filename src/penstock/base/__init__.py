"""The vocabulary every other layer shares: ports, ids, errors. Imports nothing of ours."""
