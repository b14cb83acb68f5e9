"""`penstock mcp`: the command line as tools of the Model Context Protocol.

`reading.py` and `writing.py` hold one function per tool; each runs a command of this command line
in a process of its own (`command_runner.py`), so that a tool can do what its user can, and no more.
"""
