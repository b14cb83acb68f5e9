"""`penstock up`: one node in this process, until SIGTERM or Ctrl-C.

Says one line on standard output when it serves, so that scripts can wait for it:
`penstock ready kafka=HOST:PORT http=URL`. What a node is told and how it runs is `penstock.node`'s
business.
"""

from collections.abc import Sequence

import click

from penstock.cli.errors import UserError


@click.command("up")
@click.option("--data", metavar="DIR", help="Where logs and metadata live [./penstock-data].")
@click.option(
    "--kafka-port",
    type=int,
    metavar="PORT",
    help="Kafka's protocol; 0 picks a free port [9092].",
)
@click.option(
    "--http-port", type=int, metavar="PORT", help="HTTP and metrics; 0 picks a free port [8080]."
)
@click.option("--host", help="The address to listen on and to advertise [127.0.0.1].")
@click.option("--node-id", type=int, metavar="N", help="This node's id in the cluster [1].")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="A broker config by Kafka's name, e.g. num.partitions=6; repeatable.",
)
@click.option("--config", metavar="FILE", help="A TOML file with the same settings; flags win.")
def up(
    data: str | None,
    kafka_port: int | None,
    http_port: int | None,
    host: str | None,
    node_id: int | None,
    sets: tuple[str, ...],
    config: str | None,
) -> None:
    """Start a broker on this machine.

    Prints `penstock ready kafka=HOST:PORT http=URL` when it serves; stops cleanly on SIGTERM and
    Ctrl-C.
    """
    from penstock.node.config import load
    from penstock.node.node import run

    flags = {
        "data_dir": data,
        "host": host,
        "kafka_port": kafka_port,
        "http_port": http_port,
        "node_id": node_id,
    }
    run(load(config, flags, parse_pairs(sets, "--set")), announce)


def announce(kafka: str, http: str) -> None:
    print(f"penstock ready kafka={kafka} http={http}", flush=True)


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` pairs of a repeatable option; the last one of a name wins."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"{option} {text!r} is not a setting; write {option} name=value")
        pairs[name.strip()] = value.strip()
    return pairs
