"""Runs the transcripts `groups_*.txt`: a command, a line of dashes, the resulting state.

Commands: `topics t=4` sets the cluster's topics; `classic a b`, `cooperative a`, `consumer a b`
start clients (`a/i1` with an instance id); `run 5s` lets all act every second; `silence a 11s` lets
all but those named; `leave a`; `back a` starts a static client again under its name; `crash` loads
the shard anew; `commit a 5` and `offset`; `old a 5` commits under an outdated identity. After each
command one line shows the group; `offset` and commits have their own.
"""

import re
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.config import GroupConfig
from tests.unit.state.groups.clients import ClassicClient, Client, ConsumerClient, by_topic
from tests.unit.state.groups.driver import Driver

FOLDER = Path(__file__).parent
STEP_MS = 1_000


class Stage:
    """The clients of one transcript."""

    def __init__(self) -> None:
        self.driver = Driver(GroupConfig(initial_rebalance_delay_ms=500))
        self.clients: dict[str, Client] = {}

    def play(self, line: str) -> str:
        command, *words = line.split()
        answer = getattr(self, f"do_{command}")(*words)
        return self.show() if answer is None else str(answer)

    def do_topics(self, *counts: str) -> None:
        pairs = (count.split("=") for count in counts)
        self.driver.set_topics(**{name: int(count) for name, count in pairs})

    def do_classic(self, *names: str) -> None:
        self._start(ClassicClient, names)

    def do_cooperative(self, *names: str) -> None:
        self._start(ClassicClient, names, is_cooperative=True)

    def do_consumer(self, *names: str) -> None:
        self._start(ConsumerClient, names)

    def _start(self, kind: type[Client], names: tuple[str, ...], **options: bool) -> None:
        for written in names:
            name, _, instance = written.partition("/")
            client = kind(self.driver, name, "g", ("t",), instance or None, **options)
            self.clients[name] = client
            client.step()

    def do_run(self, duration: str) -> None:
        self._run(duration, set())

    def do_silence(self, *words: str) -> None:
        self._run(words[-1], set(words[:-1]))

    def _run(self, duration: str, silent: set[str]) -> None:
        match = re.fullmatch(r"(\d+)s", duration)
        assert match is not None, duration
        for _ in range(int(match[1]) * 1_000 // STEP_MS):
            self.driver.sleep(STEP_MS)
            for name, client in self.clients.items():
                if name not in silent:
                    client.step()

    def do_leave(self, name: str) -> None:
        client = self.clients.pop(name)
        assert isinstance(client, ClassicClient | ConsumerClient)
        client.leave()

    def do_pause(self, name: str) -> None:
        client = self.clients.pop(name)
        assert isinstance(client, ConsumerClient)
        client.leave(epoch=-2)

    def do_crash(self) -> None:
        for client in self.clients.values():
            if isinstance(client, ClassicClient):
                client.disconnect()
        self.driver.crash()

    def do_commit(self, name: str, offset: str) -> str:
        return self.clients[name].commit(int(offset)).name

    def do_old(self, name: str, offset: str) -> str:
        client = self.clients[name]
        return client.commit(int(offset), client.old[-1]).name

    def do_offset(self) -> str:
        found = self.driver.fetch("g", is_stable=True)
        return found.name if isinstance(found, ErrorCode) else f"offset {found}"

    def show(self) -> str:
        group = self.driver.shard.groups.get("g")
        if group is None:
            return "no group"
        is_classic = isinstance(group, ClassicGroup)
        number = group.generation if isinstance(group, ClassicGroup) else group.value.epoch
        owned = " ".join(self._owned(client) for client in self.clients.values())
        kind = "generation" if is_classic else "epoch"
        return f"{group.state}, {kind} {number}: {owned}".rstrip(": ")

    def _owned(self, client: Client) -> str:
        rows = by_topic(client.owned)
        told = " ".join(f"{t}:{','.join(map(str, p))}" for t, p in rows.items())
        return f"{client.name}=[{told}]"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("groups_*.txt")), ids=lambda path: path.stem)
def test_transcript_is_reproduced(path: Path) -> None:
    stage = Stage()
    played: list[str] = []
    for block in path.read_text().strip().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        notes = [line for line in block.splitlines() if line.startswith("#")]
        if not lines:
            played.append("\n".join(notes))
            continue
        commands = lines[: lines.index("----")]
        answers = [stage.play(command) for command in commands]
        played.append("\n".join([*notes, *commands, "----", answers[-1]]))
    assert "\n\n".join(played) == path.read_text().strip()
