"""What encryption at rest costs: one broker and client, a plain and an encrypted topic in turns."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import load, proc
from bench.measures import GB, Figures, Sizes, settle
from bench.sides import Process, penstock, topic

PARTITIONS = 6
SIZE = 1024


@contextmanager
def running(root: Path) -> Iterator[Process]:
    """A broker that can encrypt; topics say whether it does."""
    root.mkdir(parents=True, exist_ok=True)
    kek = root / "kek"
    kek.write_text(bytes(range(32)).hex())
    with penstock({"encryption.kek.source": f"file:{kek}"}).running(root) as process:
        yield process


def traffic(process: Process, sizes: Sizes) -> Figures:
    """Produce to both kinds and read both back; the share of the plain rate that is lost."""
    figures: Figures = {}
    with (
        topic(process.bootstrap, PARTITIONS, config={"encryption.enable": "false"}) as plain,
        topic(process.bootstrap, PARTITIONS, config={"encryption.enable": "true"}) as encrypted,
    ):
        for verb in ("produce", "consume"):
            rates = {}
            for kind, name in (("plain", plain), ("encrypted", encrypted)):
                rates[kind], cpu_s = _measure(process, verb, name, sizes)
                figures[f"encryption_{verb}_{kind}_rate"] = rates[kind]
                figures[f"encryption_{verb}_{kind}_cpu"] = cpu_s
            figures[f"encryption_{verb}_cost"] = 100 * (1 - rates["encrypted"] / rates["plain"])
    return figures


def _measure(process: Process, verb: str, name: str, sizes: Sizes) -> tuple[float, float]:
    """Messages a second, and seconds of the broker's processor for each GB."""
    count = sizes.messages(SIZE)
    settle(sizes if verb == "produce" else None)
    more = load.PRODUCER if verb == "produce" else {}
    with proc.watched(process.pid) as used:
        done = load.run(verb, process.bootstrap, name, PARTITIONS, count, SIZE, settings=more)
    return done["messages"] / done["seconds"], used.cpu_s / (count * SIZE / GB)
