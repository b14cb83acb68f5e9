"""The vocabulary every other layer shares: ports, ids, errors, metrics. Imports nothing of ours."""
