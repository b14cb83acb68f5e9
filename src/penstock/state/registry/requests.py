"""Calls to the registry: one small class for each, which may travel between nodes.

Endpoints create them from requests; the leader of the registry's partition handles them. A
response is what the REST API returns, as JSON values.
"""

from typing import Any

import msgspec

LATEST = -1
LIMIT_MAX = 10_000
"""Maximum rows of a listing."""


class RegistryCall(msgspec.Struct, frozen=True, tag_field="call", tag="Call"):
    """Base of all calls. Tags travel between nodes and are in the audit log: each class declares
    its own, which stays when the class is renamed."""


class ListPage(RegistryCall, frozen=True, tag="Page"):
    """A call that returns a page of a listing."""

    offset: int = 0
    limit: int = LIMIT_MAX


class NamedReference(msgspec.Struct, frozen=True):
    """A reference as a client writes it."""

    name: str
    subject: str
    version: int


class Proposal(RegistryCall, frozen=True, tag="Proposal"):
    """A call with a schema from a client."""

    subject: str
    schema: str
    type: str
    references: tuple[NamedReference, ...] = ()
    normalize: bool = False
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None


class Register(Proposal, frozen=True, tag="Register"):
    """Registers the schema as a version. Id and version: those of another registry."""

    id: int | None = None
    version: int | None = None


class LookUp(Proposal, frozen=True, tag="LookUp"):
    """Finds the subject's version that equals the schema."""

    deleted: bool = False
    form: str = ""
    anywhere: bool = False
    """Search other contexts if the default one lacks the subject.

    The sender checks the permissions on the result; nodes that know no contexts do not.
    """


class CheckProposal(Proposal, frozen=True, tag="CheckProposal"):
    """Checks compatibility. `version`: compare with that one only."""

    version: int | None = None
    verbose: bool = False


class ListSubjects(ListPage, frozen=True, tag="ListSubjects"):
    prefix: str = ""
    deleted: bool = False
    deleted_only: bool = False
    everywhere: bool = False
    """Match the prefix in every context."""


class ListVersions(ListPage, frozen=True, tag="ListVersions"):
    subject: str = ""
    deleted: bool = False
    deleted_only: bool = False


class ListSchemas(ListPage, frozen=True, tag="ListSchemas"):
    prefix: str = ""
    deleted: bool = False
    latest_only: bool = False
    everywhere: bool = False


class ListContexts(ListPage, frozen=True, tag="ListContexts"):
    prefix: str = ""


class GetVersion(RegistryCall, frozen=True, tag="GetVersion"):
    subject: str
    version: int
    deleted: bool = False
    form: str = ""
    qualified: bool = False
    """Show references with their contexts."""
    anywhere: bool = False


class GetByMetadata(RegistryCall, frozen=True, tag="GetByMetadata"):
    """Finds the last version whose metadata has all of these properties."""

    subject: str
    properties: dict[str, str]
    deleted: bool = False
    form: str = ""


class GetReferrers(RegistryCall, frozen=True, tag="GetReferrers"):
    subject: str
    version: int
    deleted: bool = False


class GetById(RegistryCall, frozen=True, tag="GetById"):
    id: int
    subject: str | None = None
    form: str = ""
    with_highest_id: bool = False
    qualified: bool = False
    anywhere: bool = False


class GetByIdThere(GetById, frozen=True, tag="GetByIdThere"):
    """GetById in a context other than the default one.

    Nodes that know no contexts would answer `GetById` with a schema of the default one; they refuse
    this.
    """


class GetByGuid(RegistryCall, frozen=True, tag="GetByGuid"):
    guid: str
    form: str = ""


class ListIdsOfGuid(RegistryCall, frozen=True, tag="ListIdsOfGuid"):
    guid: str


class ListPlaces(ListPage, frozen=True, tag="ListPlaces"):
    """Lists subjects, or subjects and versions, that have an id."""

    id: int = 0
    subject: str | None = None
    deleted: bool = False
    with_versions: bool = False
    found_by: str | None = None
    """List all subjects of the context in which this subject finds the id."""


class DeleteVersion(RegistryCall, frozen=True, tag="DeleteVersion"):
    subject: str
    version: int
    permanent: bool = False


class DeleteSubject(RegistryCall, frozen=True, tag="DeleteSubject"):
    subject: str
    permanent: bool = False


class DeleteContext(RegistryCall, frozen=True, tag="DeleteContext"):
    """Deletes an empty context; `subject` is its name as the prefix of subjects, `:.sales:`."""

    subject: str


class GetConfig(RegistryCall, frozen=True, tag="GetConfig"):
    subject: str | None = None
    default_to_global: bool = False


class PutConfig(RegistryCall, frozen=True, tag="PutConfig"):
    subject: str | None = None
    level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    group: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rules: dict[str, Any] | None = None
    override_rules: dict[str, Any] | None = None


class DeleteConfig(RegistryCall, frozen=True, tag="DeleteConfig"):
    subject: str | None = None


class GetMode(RegistryCall, frozen=True, tag="GetMode"):
    subject: str | None = None
    default_to_global: bool = False


class PutMode(RegistryCall, frozen=True, tag="PutMode"):
    mode: str
    subject: str | None = None
    force: bool = False


class DeleteMode(RegistryCall, frozen=True, tag="DeleteMode"):
    subject: str | None = None
    recursive: bool = False


class Vouch(RegistryCall, frozen=True, tag="Vouch"):
    """Returns those ids and guids that are schemas of the subject of a topic's records."""

    topic: str
    is_key: bool
    strategy: str
    ids: tuple[int, ...] = ()
    guids: tuple[str, ...] = ()


AnyCall = (
    Register
    | LookUp
    | CheckProposal
    | ListSubjects
    | ListVersions
    | ListSchemas
    | ListContexts
    | GetVersion
    | GetByMetadata
    | GetReferrers
    | GetById
    | GetByIdThere
    | GetByGuid
    | ListIdsOfGuid
    | ListPlaces
    | DeleteVersion
    | DeleteSubject
    | DeleteContext
    | GetConfig
    | PutConfig
    | DeleteConfig
    | GetMode
    | PutMode
    | DeleteMode
    | Vouch
)
"""All calls that `decode_call` accepts."""

encode_call = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(AnyCall).decode
