"""The `penstock` command: what people type. Mistakes end in one readable line, not a traceback.

Modules here import the rest of Penstock inside their functions, so that `penstock --help` costs
what click costs and nothing more.
"""
