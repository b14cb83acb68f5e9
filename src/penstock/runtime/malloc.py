"""Keeps memory that was freed, as far as the C library lets itself be told.

A broker takes and drops buffers of a megabyte all the time. By default glibc gives each of them
back to the kernel, which clears every page anew for the next one: that was half of what it cost to
read an encrypted topic. The price: up to `KEPT_BYTES_MAX` stay ours while nobody needs them.
"""

import ctypes

KEPT_BYTES_MAX = 32 << 20
MAPPED_BYTES_MIN = 16 << 20
"""Larger ones are rare, and are given back at once."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed() -> bool:
    """For the whole process; call it before much was allocated. False where it cannot be done."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # Another C library, with ways of its own.
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    kept = mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) and kept)
