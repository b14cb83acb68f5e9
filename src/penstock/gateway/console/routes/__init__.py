"""The console's own routes, a module for each kind of page."""
