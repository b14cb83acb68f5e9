"""What can be asked of the registry: one small class for each, which may travel between nodes.

Doors make them from requests; the node that leads the registry's topic answers. An answer is what
the REST API answers with, as values that JSON has.
"""

from typing import Any

import msgspec

LATEST = -1
LIMIT_MAX = 10_000
"""Of a listing, if nothing smaller is asked for."""


class RegistryCall(msgspec.Struct, frozen=True, tag_field="call", tag="Call"):
    """Anything that can be asked. Tags travel between nodes and are in the audit log: each class
    says its own, which stays when the class is renamed."""


class ListPage(RegistryCall, frozen=True, tag="Page"):
    """A stretch of a listing."""

    offset: int = 0
    limit: int = LIMIT_MAX


class NamedReference(msgspec.Struct, frozen=True):
    """A reference as a client writes it."""

    name: str
    subject: str
    version: int


class Proposal(RegistryCall, frozen=True, tag="Proposal"):
    """A schema that a client shows."""

    subject: str
    schema: str
    type: str
    references: tuple[NamedReference, ...] = ()
    normalize: bool = False
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None


class Register(Proposal, frozen=True, tag="Register"):
    """Makes it a version of the subject. Id and version: as another registry gave them."""

    id: int | None = None
    version: int | None = None


class LookUp(Proposal, frozen=True, tag="LookUp"):
    """Which version of the subject it is."""

    deleted: bool = False
    form: str = ""
    anywhere: bool = False
    """In another context, if the default one has no such thing.

    Who asks so checks the rights to what is found; nodes that know no contexts do not.
    """


class CheckProposal(Proposal, frozen=True, tag="CheckProposal"):
    """Whether it could be registered. `version`: only with that one beside it."""

    version: int | None = None
    verbose: bool = False


class ListSubjects(ListPage, frozen=True, tag="ListSubjects"):
    prefix: str = ""
    deleted: bool = False
    deleted_only: bool = False
    everywhere: bool = False
    """In every context a subject whose name there begins so."""


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
    """References are shown with their contexts."""
    anywhere: bool = False


class GetByMetadata(RegistryCall, frozen=True, tag="GetByMetadata"):
    """The last version whose metadata has all of these properties."""

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
    """In a context other than the default one.

    Nodes that know no contexts would answer `GetById` with a schema of the default one, and refuse
    this.
    """


class GetByGuid(RegistryCall, frozen=True, tag="GetByGuid"):
    guid: str
    form: str = ""


class ListIdsOfGuid(RegistryCall, frozen=True, tag="ListIdsOfGuid"):
    guid: str


class ListPlaces(ListPage, frozen=True, tag="ListPlaces"):
    """Subjects, or subjects and versions, that have an id."""

    id: int = 0
    subject: str | None = None
    deleted: bool = False
    with_versions: bool = False
    found_by: str | None = None
    """All subjects of the context in which the id is found by way of this one."""


class DeleteVersion(RegistryCall, frozen=True, tag="DeleteVersion"):
    subject: str
    version: int
    permanent: bool = False


class DeleteSubject(RegistryCall, frozen=True, tag="DeleteSubject"):
    subject: str
    permanent: bool = False


class DeleteContext(RegistryCall, frozen=True, tag="DeleteContext"):
    """An empty one; `subject` is its name as the prefix of subjects, `:.sales:`."""

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
    """Which of these ids and guids are schemas of the subject that a topic's records have."""

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
"""All of them: what `decode_call` understands."""

encode_call = msgspec.json.Encoder().encode
decode_call = msgspec.json.Decoder(AnyCall).decode
