"""A broker that asks who is there: certificates, listeners of every protocol, users, tokens.

One process for a test module. The plain listener is for the test's own administrator, whom
`super.users` names; all others need ACLs.
"""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.brokers import QUICK, PenstockProcess
from tests.ports import free_port

USER, PASSWORD = "bob", "correct horse"
TOPIC = "guarded"
FAILED = "Authentication failed: wrong user, password or token."
"""Reason that a refused client gets, whatever was wrong."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


@dataclass
class Secured:
    """The broker, and what clients of it need."""

    process: PenstockProcess
    ports: dict[str, int]
    directory: Path
    key: rsa.RSAPrivateKey
    ca: trustme.CA = field(repr=False, default_factory=trustme.CA)

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def ca_file(self) -> str:
        return str(self.directory / "ca.pem")

    def certificate(self, name: str) -> str:
        """A client's key and certificate in one file."""
        path = self.directory / f"{name}.pem"
        if not path.exists():
            leaf = self.ca.issue_cert(f"{name}@example.org", common_name=name)
            leaf.private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.at("PLAINTEXT"), "log_level": 0})

    def add_user(self, name: str, password: str = PASSWORD) -> None:
        rows = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(each, 8192), password.encode())
            for each in SCRAM
        ]
        self.admin.alter_user_scram_credentials(rows)[name].result(30)

    def remove_user(self, name: str) -> None:
        rows = [UserScramCredentialDeletion(name, each) for each in SCRAM]
        self.admin.alter_user_scram_credentials(rows)[name].result(30)

    def allow(self, principal: str, *operations: AclOperation, topic: str = TOPIC) -> None:
        for operation in operations:
            binding = AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                principal,
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            self.admin.create_acls([binding])[binding].result(30)

    def token(self, **claims: Any) -> str:
        """A signed token for bob, valid for a minute unless `claims` say otherwise."""
        body = {"sub": USER, "exp": int(time.time()) + 60, "iss": "test", "aud": "broker", **claims}
        head = {"alg": "RS256", "kid": "one"}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, body))
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextmanager
def secured(directory: Path, **sets: object) -> Iterator[Secured]:
    """A broker with a listener for each protocol, the user bob, and a topic he may use."""
    key = rsa.generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    row = {
        "kty": "RSA",
        "kid": "one",
        "n": _text(numbers.n.to_bytes(256, "big")),
        "e": _text(b"\1\0\1"),
    }
    (directory / "keys.json").write_text(json.dumps({"keys": [row]}))
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    leaf = ca.issue_cert("127.0.0.1", "localhost")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    ports = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    process = PenstockProcess(
        directory / "data",
        {
            **QUICK,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "ssl.keystore.location": directory / "server.pem",
            "ssl.truststore.location": directory / "ca.pem",
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)(,.*)?$/$1/L",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
            "sasl.oauthbearer.expected.issuer": "test",
            "sasl.oauthbearer.expected.audience": "broker",
            "authorizer.class.name": "acl",
            "super.users": "User:ANONYMOUS",
            **sets,
        },
    )
    try:
        found = Secured(process, ports, directory, key, ca)
        found.admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        found.add_user(USER)
        found.allow(f"User:{USER}", AclOperation.WRITE, AclOperation.READ)
        binding = AclBinding(
            ResourceType.GROUP,
            "*",
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        found.admin.create_acls([binding])[binding].result(30)
        yield found
    finally:
        process.stop()
