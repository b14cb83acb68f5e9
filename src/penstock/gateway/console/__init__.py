"""The console: pages for people on the HTTP port, and what those pages ask that programs do not."""
