"""`penstock.runtime.malloc`: settings are applied where the C library supports them."""

import platform

from penstock.runtime.malloc import keep_freed


def test_c_library_takes_both_settings() -> None:
    assert keep_freed() is (platform.libc_ver()[0] == "glibc")
