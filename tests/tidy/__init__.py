"""Rules about the tree itself that no linter knows."""
