"""Web console: pages on the HTTP port, and the routes that only these pages use."""
