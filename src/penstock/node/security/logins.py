"""Authentication of clients on a listener, against the users of this cluster.

Owns: one `Login` for each connection; the keys that sign tokens, fetched when a token names an
unknown one and when they are old, at most every `REFRESH_SECONDS`; and the secret by which the
nodes of a cluster authenticate to each other. A process that can read the cluster's metadata counts
as a node.

Elsewhere: the order in which passwords are checked (`passwords`).
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import partial

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Put, Random, Store, StoreEntry, WallClock, Workers
from penstock.client.sasl import Credentials
from penstock.cluster.access import users
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import compare_and_swap, store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import SecretRecord
from penstock.node.config_consistency import missing_for_tokens
from penstock.node.security.passwords import Passwords
from penstock.runtime.http_request import read_document
from penstock.security import oauth_tokens, scram
from penstock.security.acl_types import NODE_USER
from penstock.security.login import (
    AuthenticatedIdentity,
    BearerExchange,
    Exchange,
    Login,
    LoginFailed,
    PlainExchange,
    ScramExchange,
)
from penstock.security.oauth_tokens import KeySet, TokenRules
from penstock.security.scram import Credential, ServerExchange

log = logging.getLogger("penstock.security")

ADMIN = "admin"
ANY = "*"
NONCE_BYTES = 24
SALT_BYTES = 24
SECRET_BYTES = 32
REFRESH_SECONDS = 60.0
NODE_MECHANISM = "SCRAM-SHA-256"


async def cluster_secret(store: Store, random: Random) -> bytes:
    """Returns the secret of this cluster; the first caller creates it."""
    fresh = SecretRecord(random.random_bytes(SECRET_BYTES))

    def decide(entries: Sequence[StoreEntry | None]) -> Sequence[Put]:
        return [] if entries[0] else [Put(store_keys.CLUSTER_SECRET, store_keys.encode(fresh))]

    await compare_and_swap.swap(store, [store_keys.CLUSTER_SECRET], decide)
    entry = await store.get(store_keys.CLUSTER_SECRET)
    assert entry is not None
    return store_keys.decode(SecretRecord, entry.value).secret


async def make_admin(store: Store, image: Image, random: Random, path: str) -> None:
    """Sets the password of user `admin` to the first line of a file."""
    password = _first_line(path)
    if not password:
        raise Refused(ErrorCode.INVALID_CONFIG, f"the first line of {path} is empty")
    made: dict[str, Credential | None] = {}
    for mechanism in scram.MECHANISMS:
        salt = random.random_bytes(SALT_BYTES)
        salted = scram.salted_password(mechanism, password, salt, scram.ITERATIONS)
        made[mechanism] = scram.credential_of(mechanism, salted, salt, scram.ITERATIONS)
    await users.alter(store, image, ADMIN, made)


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline().rstrip("\r\n")


def node_credentials(secret: bytes) -> Credentials:
    """Returns the credentials of a node for other nodes."""
    return Credentials(NODE_MECHANISM, NODE_USER, secret.hex())


class Logins:
    """Creates the login of each connection, and verifies passwords for other protocols."""

    def __init__(
        self,
        configs: BrokerConfigs,
        watcher: MetadataWatcher,
        workers: Workers,
        clock: WallClock,
        random: Random,
        secret: bytes,
    ) -> None:
        self._configs = configs
        self._watcher = watcher
        self._workers = workers
        self._clock = clock
        self._random = random
        self._secret = secret
        self._passwords = Passwords(workers, random)
        self._nodes: dict[str, Credential] = {}
        self._key_set = KeySet()
        self._tried_at = self._fetched_at = float("-inf")
        self._fetching: asyncio.Lock = asyncio.Lock()

    def login(self) -> Login:
        """Returns the login of a connection that must authenticate."""
        known: dict[str, Callable[[], Exchange]] = {}
        for mechanism in self._configs.items("sasl.enabled.mechanisms"):
            if mechanism == "PLAIN":
                known[mechanism] = partial(PlainExchange, self.verify)
            elif mechanism == "OAUTHBEARER":
                known[mechanism] = partial(BearerExchange, self.verify_token)
            else:
                known[mechanism] = partial(self._scram, mechanism)
        # Nodes authenticate with it, whichever mechanisms clients may use.
        known.setdefault(NODE_MECHANISM, partial(self._scram, NODE_MECHANISM, nodes_only=True))
        return Login(known)

    def node_login(self) -> Login:
        """Returns the login of a listener without authentication while ACLs are enforced: it lets a
        node authenticate as a node, and no other client."""
        make = partial(self._scram, NODE_MECHANISM, nodes_only=True)
        return Login({NODE_MECHANISM: make}, is_optional=True)

    def _scram(self, mechanism: str, *, nodes_only: bool = False) -> Exchange:
        nonce = base64.b64encode(self._random.random_bytes(NONCE_BYTES)).decode()
        find = partial(self._find, mechanism, nodes_only)
        return ScramExchange(ServerExchange(mechanism, find, self._secret, nonce))

    def _find(self, mechanism: str, nodes_only: bool, name: str) -> Credential | None:
        if name == NODE_USER:
            return self._node_credential(mechanism)
        if nodes_only:
            return None
        return users.credential(self._watcher.image, name, mechanism)

    def _node_credential(self, mechanism: str) -> Credential:
        known = self._nodes.get(mechanism)
        if known is None:
            salt = hashlib.sha256(b"node:" + self._secret).digest()[:16]
            password, rounds = self._secret.hex(), scram.ITERATIONS_MIN
            salted = scram.salted_password(mechanism, password, salt, rounds)
            known = scram.credential_of(mechanism, salted, salt, rounds)
            self._nodes[mechanism] = known
        return known

    async def verify(self, name: str, password: str, peer: str) -> bool:
        """Returns True if the user has this password; refuses when too many checks wait.

        An unknown user takes as long as a known one.
        """
        image = self._watcher.image
        for mechanism in scram.MECHANISMS:
            credential = users.credential(image, name, mechanism)
            if credential is not None:
                break
        else:
            mechanism = NODE_MECHANISM
            credential = scram.invented(mechanism, name, self._secret)
        return await self._passwords.fits(mechanism, credential, name, password, peer)

    # -- tokens -----------------------------------------------------------------------------

    async def verify_token(self, token: str) -> AuthenticatedIdentity:
        """Returns the identity of a token's subject; raises LoginFailed."""
        configs = self._configs
        missing = missing_for_tokens(configs)
        if missing:
            raise LoginFailed(f"tokens are not accepted: {missing[0]} is not set")
        wanted = oauth_tokens.key_id(token)
        if wanted not in self._key_set.keys:
            await self._refresh(wanted)
        elif self._is_old() and not self._fetching.locked():
            try:
                await self._refresh(wanted)
            except LoginFailed as failed:
                log.warning("the keys that sign tokens were not updated: %s", failed)
        rules = TokenRules(
            configs.text("sasl.oauthbearer.expected.issuer"),
            [name for name in configs.items("sasl.oauthbearer.expected.audience") if name != ANY],
            configs.text("sasl.oauthbearer.sub.claim.name") or "sub",
            configs.integer("sasl.oauthbearer.clock.skew.seconds") * 1000,
        )
        return oauth_tokens.verify(token, self._key_set, rules, self._clock.now_ms())

    def _is_old(self) -> bool:
        """True if a key may have been revoked since the keys were fetched."""
        age_ms_max = self._configs.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms")
        now = asyncio.get_running_loop().time()
        return now >= self._fetched_at + age_ms_max / 1000

    async def _refresh(self, wanted: str) -> None:
        loop = asyncio.get_running_loop()
        async with self._fetching:
            is_good = wanted in self._key_set.keys and not self._is_old()
            if is_good or loop.time() < self._tried_at + REFRESH_SECONDS:
                return
            self._tried_at = loop.time()
            url = self._configs.text("sasl.oauthbearer.jwks.endpoint.url")
            assert url is not None
            try:
                document = await self._workers.run(read_document, url)
                self._key_set = oauth_tokens.parse_keys(document)
                self._fetched_at = loop.time()
            except (OSError, ValueError, Refused) as error:
                raise LoginFailed(f"the keys at {url} cannot be read: {error}") from error
