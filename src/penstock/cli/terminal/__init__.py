"""Input and output of commands: tables, progress, confirmation, templates, errors."""
