"""Vocabulary shared by all layers: ports, ids, errors, metrics. Imports no other Penstock code."""
