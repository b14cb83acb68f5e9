"""A small network of this machine, in which single directions can be cut.

Every place is a network namespace with one address, all joined by a bridge; this process is on the
bridge, too. A direction is cut by giving the sender a wrong hardware address of the receiver: its
packets leave and are not received, as on a network that loses everything. Nothing is refused, and
no side is notified. Only `ip` is needed, no packet filter; and root, to make namespaces.

Owns exactly the namespaces and interfaces that it makes.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence

import pytest

NOWHERE = "02:00:00:00:00:01"
HERE = "here"
"""The place of this process, and so of its clients."""


class NotPermitted(Exception):
    """There is no `ip`, or it may not make namespaces here; the message has its error."""


class Network:
    """Made whole; `cut` and `heal` change it, `close` removes it."""

    def __init__(self, places: Sequence[str]) -> None:
        # The number of this process makes names and addresses that no other run uses.
        self._mark = f"pk{os.getpid()}"
        self._bridge = f"{self._mark}b"
        subnet = f"10.{200 + os.getpid() // 250 % 50}.{os.getpid() % 250}"
        self.addresses = {place: f"{subnet}.{n}" for n, place in enumerate(places, start=1)}
        self.addresses[HERE] = f"{subnet}.254"
        self._cuts: dict[tuple[str, str], None] = {}
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.addresses[HERE]}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, place in enumerate(self._places):
            space, near = self._space(place), f"{self._mark}v{number}"
            _ip("netns", "add", space)
            _ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", near, "master", self._bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.addresses[place]}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def close(self) -> None:
        """Removes what there is; processes in it keep their namespace until they end."""
        for number, place in enumerate(self._places):
            # A namespace goes some time after its name; the next network needs these names at once.
            near = f"{self._mark}v{number}"
            subprocess.run(["ip", "link", "del", near], capture_output=True)
            subprocess.run(["ip", "netns", "del", self._space(place)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)

    @property
    def _places(self) -> list[str]:
        return [place for place in self.addresses if place != HERE]

    def _space(self, place: str) -> str:
        return f"{self._mark}-{place}"

    def prefix(self, place: str) -> list[str]:
        """Prefix of a command that runs in this place."""
        return ["ip", "netns", "exec", self._space(place)]

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from `source` to `target`; the way back stays."""
        where = () if source == HERE else ("-n", self._space(source))
        device = self._bridge if source == HERE else "eth0"
        entry = (self.addresses[target], "lladdr", NOWHERE, "dev", device, "nud", "permanent")
        _ip(*where, "neigh", "replace", *entry)
        self._cuts[source, target] = None

    def isolate(self, place: str, others: Iterable[str]) -> None:
        """Nothing gets through either way."""
        for other in others:
            self.cut(place, other)
            self.cut(other, place)

    def heal(self) -> None:
        for source, target in self._cuts:
            where = () if source == HERE else ("-n", self._space(source))
            device = self._bridge if source == HERE else "eth0"
            _ip(*where, "neigh", "del", self.addresses[target], "dev", device)
        self._cuts.clear()


def require_network(places: Sequence[str]) -> Network:
    """A network; where it is not permitted, a skip that says so (and in CI a failure)."""
    try:
        return Network(places)
    except NotPermitted as refused:
        pytest.skip(f"network namespaces are not permitted here: {refused}")


def _ip(*words: str) -> None:
    if shutil.which("ip") is None:
        raise NotPermitted("there is no `ip` (Debian: apt-get install iproute2)")
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPermitted(f"`ip {' '.join(words)}`: {done.stderr.strip()}")
