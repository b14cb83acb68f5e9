"""`penstock.runtime.malloc`: where the C library can be told, it is."""

import platform

from penstock.runtime.malloc import keep_freed


def test_the_c_library_takes_both_settings() -> None:
    assert keep_freed() is (platform.libc_ver()[0] == "glibc")
