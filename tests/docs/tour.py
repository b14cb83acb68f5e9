"""Writes docs/tour.md and its pictures: `make tour`, or `python -m tests.docs.tour`.

Every command of the page runs against real brokers, on a terminal, and its output becomes an SVG.
A command whose output lacks what the page promises ends the script. The page itself does not
depend on the run, so a test compares it with the committed one.
"""

import argparse
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.brokers import PenstockProcess
from tests.clusters import ClusterProcess
from tests.console.browser import Browser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs"
COLUMNS = 100
PATIENCE_S = 90.0
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
NOTE = "<!-- Written by tests/docs/tour.py: change it, then run `make tour`. -->\n"


@dataclass(frozen=True)
class Run:
    """Commands that are typed one after the other; their output is one picture."""

    picture: str
    alt: str
    commands: tuple[str, ...]
    expect: tuple[str, ...]
    """Text that the output must contain; the commands are repeated until it does."""

    repeat: bool = False


@dataclass(frozen=True)
class Saved:
    """A file that the reader saves."""

    name: str
    text: str


@dataclass(frozen=True)
class Left:
    """A command left running in a second terminal."""

    command: str


@dataclass(frozen=True)
class Seen:
    """Output so far of the command that was left running."""

    picture: str
    alt: str
    expect: tuple[str, ...]


@dataclass(frozen=True)
class Looked:
    """A page of the console."""

    picture: str
    alt: str
    path: str
    shows: str
    within: str = "main"


Part = str | Run | Saved | Left | Seen | Looked

SHOP = Saved(
    "labels.py",
    """\
from penstock import Message, Worker

worker = Worker(group="printers")


@worker.task("labels", retries=1, backoff="200ms")
async def print_label(message: Message) -> None:
    label = message.json()
    print("label for", label["name"], "in", label["town"].upper(), flush=True)
""",
)

SQS = Saved(
    "receive.py",
    """\
import boto3

sqs = boto3.client(
    "sqs",
    endpoint_url="http://localhost:8080",
    region_name="us-east-1",
    aws_access_key_id="any",
    aws_secret_access_key="any",
)
queue = sqs.get_queue_url(QueueName="parcels")["QueueUrl"]
for message in sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=10)["Messages"]:
    print("over SQS:", message["Body"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
""",
)

PYTHON = Saved(
    "poll.py",
    """\
from penstock import SyncClient

with SyncClient() as client:
    for message in client.poll("parcels", group="python", wait="10s"):
        print("in Python:", message.key, message.json())
        message.ack()
""",
)

PIPELINE = Saved(
    "towns.py",
    """\
from penstock.pipelines import Pipeline, Topic

pipeline = Pipeline("towns")


@pipeline.extract("labels", schema="name string not null, town string not null", to="labels.valid")
def valid(labels):
    return labels


@pipeline.transform(to=Topic("towns", compact=True), key="town", mode="update")
def count(labels):
    return labels.groupBy("town").count()
""",
)

ALONE: tuple[Part, ...] = (
    """\
# Tour

One message through every protocol, a poison message found, mended and sent back, a replay, a
pipeline on Spark, and a node that is killed. Every picture is the output of the commands
above it: a script runs them all and writes this page.

To follow, `pip install penstock-mq boto3`, start `penstock up`, and use a second terminal. The
[tutorial](tutorial.md) explains the same steps slowly.

## One message, every protocol

A topic is a log and a queue at once. A plain Kafka client, here kcat, writes a message:
""",
    Run(
        "tour-kafka", "kcat writes to the topic; penstock lists it",
        (
            "penstock topic create parcels",
            "echo 'ann:{\"parcel\": 17}' | kcat -b localhost:9092 -t parcels -P -K :",
            "kcat -b localhost:9092 -t parcels -C -e -q -f '%k wants %s\\n'",
        ),
        ("parcels", 'ann wants {"parcel": 17}'),
    ),
    """\

Over HTTP the same message is leased to the group `http`, with a receipt to acknowledge it:
""",
    Run(
        "tour-http", "curl receives the message with its receipt",
        (
            "curl -s 'localhost:8080/topics/parcels/poll?group=http&wait_ms=10000' \\\n"
            "    | python -m json.tool",
        ),
        ('"parcel": 17', "receipt"),
    ),
    "\nboto3 takes it for an SQS queue:\n",
    SQS,
    "\nand the Python client receives it, too:\n",
    PYTHON,
    "",
    Run(
        "tour-protocols", "The same message over SQS and in Python",
        ("python receive.py", "python poll.py", "penstock queue list"),
        ('over SQS: {"parcel": 17}', "in Python: b'ann' {'parcel': 17}"),
    ),
    """\

Each group is a queue of its own, so each of them got the message.

## A poison message: found, mended, sent back

A worker prints labels:
""",
    SHOP,
    "",
    Left("penstock worker labels:worker"),
    "\nThe second of these messages has no town:\n",
    Run(
        "tour-publish", "Three messages are published",
        (
            "penstock produce labels '{\"name\": \"ann\", \"town\": \"oslo\"}'",
            "penstock produce labels '{\"name\": \"bob\"}'",
            "penstock produce labels '{\"name\": \"eve\", \"town\": \"bergen\"}'",
        ),
        ("labels",),
    ),
    """\

The worker prints the others. The bad one is tried twice, and then set aside with its error and
traceback:
""",
    Seen("tour-worker", "The worker printed two labels", ("ann in OSLO", "eve in BERGEN")),
    Run(
        "tour-poison", "penstock dlq stats and show: one KeyError, with its traceback",
        ("penstock dlq stats labels --by class", "penstock dlq show labels 0:0"),
        ("KeyError", "labels.py"), repeat=True,
    ),
    "\nThe console shows the same:\n",
    Looked(
        "tour-dead-letter", "The console's page of dead letters, with the error and its traceback",
        "#/dlq/labels.dlq?letter=0%3A0", "labels.py", ".drawer",
    ),
    "\nMend it, and send it back:\n",
    Run(
        "tour-redrive", "penstock dlq redrive sends the mended message back",
        (
            "penstock dlq redrive labels --id 0:0 --yes \\\n"
            "    --payload '{\"name\": \"bob\", \"town\": \"narvik\"}'",
            "penstock dlq list",
        ),
        ("redriven 1 message",),
    ),
    Seen("tour-mended", "The worker printed bob's label as well", ("bob in NARVIK",)),
    """\

## A replay

The labels came out of the printer blank. A queue is a log underneath, so this one group gets its
finished messages again:
""",
    Run(
        "tour-replay", "penstock replay gives the group its messages again",
        ("penstock replay labels --group printers --from-offset start --yes",),
        ("redelivered 4 records",),
    ),
    Seen("tour-replayed", "Every label again", ("ann in OSLO", "bob in NARVIK") * 2),
)  # fmt: skip

SPARK: tuple[Part, ...] = (
    """\

## A pipeline on Spark

With `pip install 'penstock-mq[pipelines]'` and Java 17, two functions count the labels of each
town, exactly once. The log still has the message without a town; it goes to the dead letters of the
first stage:
""",
    PIPELINE,
    "",
    Run(
        "tour-pipeline", "penstock pipeline run: two stages, and the totals by town",
        (
            "penstock pipeline run towns.py --once --master 'local[2]'",
            "penstock dlq stats towns.valid.dlq --by class",
            "penstock consume towns -o start -e -f '%k %v\\n'",
        ),
        ("oslo", "narvik"),
    ),
    Looked(
        "tour-stages", "The console's page of pipelines",
        "#/pipelines", "towns",
    ),
)  # fmt: skip

CLUSTER: tuple[Part, ...] = (
    """\

## A node is killed

Stop the broker, and start three, each a process of its own, with etcd beside them:

```sh
penstock up --nodes 3 --data ./cluster
```

Every record is on at least two disks when it is acknowledged:
""",
    Run(
        "tour-cluster", "Three nodes, and a topic with three replicas",
        (
            "penstock topic create ledger --partitions 3",
            "seq 1 1000 | penstock produce ledger",
            "penstock cluster describe",
        ),
        ("ledger", "1000"),
    ),
    "\nKill a node by its pid in the table, and write on at once:\n",
    Run(
        "tour-killed", "A node is killed; writes go on, and all records are there",
        (
            "kill -9 $PID",
            "seq 1001 2000 | penstock produce ledger",
            "penstock cluster describe",
            "penstock consume ledger -o start -e -f '%v\\n' | sort -n | uniq | wc -l",
        ),
        ("2000",),
    ),
    """\

Another node took over, and no acknowledged record is missing.

Next: [install it](install.md), the [tutorial](tutorial.md), [compared with Celery and
FastStream](compare.md), or
[when not to use it](when-not.md).
""",
)  # fmt: skip

PARTS = (*ALONE, *SPARK, *CLUSTER)


def page(parts: tuple[Part, ...] = PARTS) -> str:
    """Text of the page, which does not depend on what the commands print."""
    blocks = []
    for part in parts:
        match part:
            case str():
                blocks.append(part)
            case Run():
                typed = "\n".join(part.commands)
                blocks.append(f"```sh\n{typed}\n```\n\n{_image(part)}\n")
            case Saved():
                blocks.append(f'```python title="{part.name}"\n{part.text}```\n')
            case Left():
                blocks.append(f"```sh\n{part.command}    # in a third terminal\n```\n")
            case Seen() | Looked():
                blocks.append(f"{_image(part)}\n")
    title, _, rest = "\n".join(block.strip("\n") + "\n" for block in blocks if block).partition(
        "\n"
    )
    return f"{title}\n\n{NOTE}{rest}"


def _image(part: Run | Seen | Looked) -> str:
    return f"![{part.alt}](images/{file_of(part)})"


def file_of(part: Run | Seen | Looked) -> str:
    return f"{part.picture}.{'png' if isinstance(part, Looked) else 'svg'}"


class Guide:
    """Follows the parts in a folder, with one broker or cluster, and draws what it sees."""

    def __init__(
        self, folder: Path, images: Path, kafka: str, http: str, browser: Browser | None = None
    ) -> None:
        self._folder = folder
        self._images = images
        self._kafka = kafka
        self._http = http.removeprefix("http://")
        self._browser = browser
        self._left: subprocess.Popen[bytes] | None = None
        self._left_said = folder / "worker.out"
        self._left_command = ""
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PENSTOCK_BROKERS": kafka,
            "PYTHONUNBUFFERED": "1",
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "LINES": "60",
        }

    def follow(self, part: Part) -> None:
        match part:
            case Run():
                self._run(part)
            case Saved():
                (self._folder / part.name).write_text(self._here(part.text))
            case Left():
                self._left_command = part.command
                with self._left_said.open("wb") as out:
                    self._left = subprocess.Popen(
                        part.command.split(), cwd=self._folder, env=self._environment,
                        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                    )  # fmt: skip
            case Seen():
                said = _until(self._left_said.read_text, part.expect)
                draw([(self._left_command, said)], self._images / file_of(part))
            case Looked() if self._browser is not None:
                self._look(self._browser, part)

    def stop(self) -> None:
        if self._left is not None:
            self._left.terminate()
            self._left.wait(PATIENCE_S)

    def _run(self, part: Run) -> None:
        shown: list[tuple[str, str]] = []

        def type_all() -> str:
            shown[:] = [(command, self._type(command)) for command in part.commands]
            return "\n".join(Text.from_ansi(output).plain for _, output in shown)

        if part.repeat:
            _until(type_all, part.expect)
        else:
            said = type_all()
            missing = [text for text in part.expect if text not in said]
            assert not missing, f"{part.picture}: {missing} not in:\n{said}"
        draw(shown, self._images / file_of(part))

    def _type(self, command: str) -> str:
        """Output of the command on a terminal of its own."""
        leader, follower = pty.openpty()
        log = (self._folder / "log").open("w+b")  # Progress and logs are not in the picture.
        process = subprocess.Popen(
            ["sh", "-c", self._here(command)], cwd=self._folder, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=follower, stderr=log,
        )  # fmt: skip
        os.close(follower)
        said = bytearray()
        while True:
            try:
                said += (more := os.read(leader, 65536))
            except OSError:  # The last writer closed the terminal.
                break
            if not more:
                break
        os.close(leader)
        code = process.wait(PATIENCE_S)
        with log:
            log.seek(0)
            assert code == 0, f"{command}: {said.decode()}\n{log.read().decode()[-3000:]}"
        return self._there(said.decode().replace("\r\n", "\n"))

    def _look(self, browser: Browser, part: Looked) -> None:
        browser.go("about:blank")
        # Not `go`: the console writes the address in its own way.
        browser.call("Page.navigate", url=f"http://{self._http}/console/{part.path}")
        browser.shows(part.shows, part.within)
        time.sleep(0.6)  # Until animations have ended.
        browser.picture(self._images / file_of(part))

    def _here(self, text: str) -> str:
        """Text with the addresses of this run."""
        text = text.replace("localhost:9092", self._kafka.partition(",")[0])
        return text.replace("localhost:8080", self._http)

    def _there(self, text: str) -> str:
        """Text with the addresses that a reader has."""
        for port, address in enumerate(self._kafka.split(",")):
            text = text.replace(address.rpartition(":")[2], str(9092 + port))
        return text.replace(self._http.rpartition(":")[2], "8080").replace(str(self._folder), ".")


def _until(look: Callable[[], str], expected: tuple[str, ...]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while not all((seen := look()).count(text) >= expected.count(text) for text in expected):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"expected {expected}, seen:\n{seen}")
        time.sleep(0.2)
    return seen


def draw(shown: list[tuple[str, str]], path: Path) -> None:
    """Writes a picture of a terminal that loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for command, output in shown:
        console.print(Text("$ " + command.replace("\\\n    ", ""), style="bold green"))
        console.print(Text.from_ansi(output.rstrip("\n")), end="\n" if output else "")
    picture = console.export_svg(title="penstock", theme=MONOKAI, unique_id=path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [line.rstrip() for line in FONTS.sub("", picture).splitlines()]
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def guide_alone(folder: Path, images: Path, browser: Browser | None, *, spark: bool) -> None:
    broker = PenstockProcess(folder / "data")
    guide = Guide(folder, images, broker.bootstrap, broker.http, browser)
    try:
        for part in (*ALONE, *SPARK) if spark else ALONE:
            guide.follow(part)
    finally:
        guide.stop()
        broker.stop()


def guide_cluster(folder: Path, images: Path) -> None:
    cluster = ClusterProcess(folder / "cluster")
    guide = Guide(folder, images, cluster.bootstrap, "http://localhost:8080")
    victim = cluster.node(2)["pid"]
    try:
        for part in CLUSTER:
            if isinstance(part, Run) and "kill -9 $PID" in part.commands:
                guide._environment["PID"] = str(victim)
            guide.follow(part)
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=FOLDER)
    options = parser.parse_args()
    images = options.into / "images"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        browser = Browser(folder / "profile")
        try:
            guide_alone(folder, images, browser, spark=True)
        finally:
            browser.close()
        guide_cluster(folder, images)
    (options.into / "tour.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
