"""Builds the accelerated record codecs if a C compiler is available.

Everything else is in pyproject.toml. The extension is optional: without it the pure-Python versions
penstock.wire._records_py and _rows_py do the same work, slower.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"penstock.wire.{name}",
            [f"src/penstock/wire/{name}.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in ("_records", "_rows")
    ]
)
