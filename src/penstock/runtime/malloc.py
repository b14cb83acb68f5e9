"""Memory allocator settings: keeps freed memory in the process, if the C library allows it.

A broker allocates and frees buffers of a megabyte all the time. By default glibc returns each of
them to the kernel, which clears every page again for the next one: that was half of the cost of
reading an encrypted topic. The price: up to `KEPT_BYTES_MAX` stay allocated while unused.
"""

import ctypes

KEPT_BYTES_MAX = 32 << 20
MAPPED_BYTES_MIN = 16 << 20
"""Larger buffers are rare, and are returned to the kernel at once."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed() -> bool:
    """Applies the settings to the process; call it early. False where that is unsupported."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # A C library without mallopt.
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    kept = mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) and kept)
