"""`penstock plan`: nodes, partitions, disks and consumers that a load needs.

Works without a cluster; the model and its coefficients are in
`penstock.cluster.metadata.capacity_model`.
"""

import dataclasses

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_table
from penstock.cluster.metadata.capacity_model import CapacityPlan, Costs, Load, plan

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 1024.0, "mi": 1024.0**2, "gi": 1024.0**3}
DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def parse_amount(text: str, option: str) -> float:
    """Parses a number with an optional unit: `100k`, `1Ki`, `2.5M`."""
    digits = text.rstrip("kKmMgGiI")
    unit = text[len(digits) :].lower()
    try:
        amount = float(digits) * UNITS[unit]
    except (ValueError, KeyError):
        raise UserError(f"{option} {text!r} is not an amount; write 100000, 100k or 1Ki") from None
    if amount <= 0:
        raise UserError(f"{option} must be above 0, not {text}")
    return amount


def parse_days(text: str) -> float:
    """Parses `7d`, `12h`, `2w`, or a number of days."""
    unit = text[-1:].lower()
    digits = text[:-1] if unit in DAYS else text
    try:
        days = float(digits) * DAYS.get(unit, 1.0)
    except ValueError:
        raise UserError(f"--retention {text!r} is not a time; write 7d, 12h or 2w") from None
    if days <= 0:
        raise UserError(f"--retention must be above 0, not {text}")
    return days


@click.command("plan")
@click.option("--rate", required=True, metavar="N", help="Messages per second, e.g. 100k.")
@click.option(
    "--size", default="1Ki", show_default=True, metavar="BYTES", help="Size of a message."
)
@click.option(
    "--retention", default="7d", show_default=True, metavar="TIME", help="E.g. 7d, 12h, 2w."
)
@click.option(
    "--replication",
    default=3,
    show_default=True,
    type=click.IntRange(1, 9),
    help="Replicas of each partition.",
)
@click.option(
    "--groups", default=1, show_default=True, type=click.IntRange(0), help="Groups reading all."
)
@click.option(
    "--batch", default="16Ki", show_default=True, metavar="BYTES", help="Bytes per request."
)
@click.option(
    "--compression", default=1.0, show_default=True, type=float, help="Compression ratio."
)
@click.option(
    "--producers",
    default=50,
    show_default=True,
    type=click.IntRange(1),
    help="Connected producers.",
)
@click.option("--handle-ms", default=0.0, type=float, help="Processing time of a message.")
@click.option("--disk-size", default="2000G", show_default=True, metavar="BYTES", help="Per node.")
@click.option(
    "--disk-speed", default="250M", show_default=True, metavar="BYTES", help="Writes per second."
)
@click.option(
    "--network", default="1100M", show_default=True, metavar="BYTES", help="Per node and second."
)
@format_option
def plan_command(
    rate: str,
    size: str,
    retention: str,
    replication: int,
    groups: int,
    batch: str,
    compression: float,
    producers: int,
    handle_ms: float,
    disk_size: str,
    disk_speed: str,
    network: str,
    format: OutputFormat,
) -> None:
    """Estimate how large a cluster a load needs.

    \b
    penstock plan --rate 100k --size 1Ki --retention 7d --replication 3
    """
    if compression <= 0 or handle_ms < 0:
        raise UserError("--compression must be above 0, and --handle-ms 0 or more")
    load = Load(
        messages_per_s=parse_amount(rate, "--rate"),
        message_bytes=parse_amount(size, "--size"),
        retention_days=parse_days(retention),
        replication=replication,
        groups=groups,
        batch_bytes=parse_amount(batch, "--batch"),
        compression=compression,
        producers=producers,
        consume_ms=handle_ms,
        disk_gb=parse_amount(disk_size, "--disk-size") / 1e9,
        disk_mb_per_s=parse_amount(disk_speed, "--disk-speed") / 1e6,
        network_mb_per_s=parse_amount(network, "--network") / 1e6,
    )
    made = plan(load)
    if format.is_data:
        print_data({"plan": dataclasses.asdict(made), "costs": dataclasses.asdict(Costs())}, format)
        return
    _show(load, made)


def _show(load: Load, made: CapacityPlan) -> None:
    print_table(
        ["item", "amount ", "reason"],
        [
            ("nodes (one core each)", made.nodes, f"limited by {made.why}"),
            ("partitions", made.partitions, f"{made.replicas_per_node} replicas per node"),
            ("consumers per group", made.consumers, "each busy 70 % of the time"),
            ("CPU, all nodes", f"{made.cpu_s_per_s:.2f} cores", f"used to {load.cpu_fill:.0%}"),
            ("disk per node", f"{made.disk_gb_per_node:,.0f} GB", f"used to {load.disk_fill:.0%}"),
            ("disk writes per node", f"{made.disk_mb_per_s_per_node:,.1f} MB/s", ""),
            ("network per node", f"{made.network_mb_per_s_per_node:,.1f} MB/s", "in and out"),
            ("memory per node", f"{made.memory_mib_per_node:,.0f} MiB", "plus page cache"),
        ],
    )
    print()
    print_table(
        ["resource", "nodes needed "], [(name, count) for name, count in made.wants.items()]
    )
    print()
    for note in made.notes:
        print(f"- {note}")
