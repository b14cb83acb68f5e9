"""The `penstock` command line. A user's mistake ends in one readable line, not a traceback.

Modules here import the rest of Penstock inside their functions, so that `penstock --help` loads
only click.
"""
