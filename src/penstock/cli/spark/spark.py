"""`penstock spark`: what a Spark cluster needs to run Penstock."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import show_bytes


@click.group("spark", no_args_is_help=True)
def spark() -> None:
    """Prepare a Spark cluster for Penstock."""


@spark.command("pack")
@click.argument(
    "archive",
    type=click.Path(path_type=Path),
    default="penstock-spark.tar.gz",
    help="The archive to write [penstock-spark.tar.gz].",
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="NAME",
    help="Also this installed package, with what it needs; repeatable.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Also this module or package of yours; repeatable.",
)
def pack(archive: Path, packages: tuple[str, ...], sources: tuple[Path, ...]) -> None:
    """Pack Penstock and its packages into an archive for Spark's executors.

    The cluster's machines need only Spark and the same version of Python.

    \b
    penstock spark pack
    penstock spark pack shop.tar.gz --source shop --package requests
    """
    from penstock.spark.environment_archive import pack as write
    from penstock.spark.option_values import OptionError

    try:
        found = write(archive, packages=packages, sources=sources)
    except (OptionError, OSError) as error:
        archive.unlink(missing_ok=True)
        raise UserError(str(error)) from None
    size = show_bytes(archive.stat().st_size)
    print(f"{archive}: {len(found)} packages, {size}")
    print(
        f"--conf spark.archives={archive}#penstock, and PYSPARK_PYTHON=./penstock/bin/python; "
        "see docs/how-to/spark-cluster.md"
    )
