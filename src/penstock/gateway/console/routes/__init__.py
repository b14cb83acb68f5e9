"""Routes of the console, a module for each kind of page."""
