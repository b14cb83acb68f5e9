"""Builds the accelerated record decoder where a C compiler is at hand.

Everything else is in pyproject.toml. The extension is optional: without it the pure-Python twin
penstock.wire._records_py does the same work, slower.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "penstock.wire._records",
            ["src/penstock/wire/_records.pyx"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
