"""What can be asked of the registry: one small class for each, which may travel between nodes.

Doors make them from requests; the node that leads the registry's topic answers. An answer is what
the REST API answers with, as values that JSON has.
"""

from typing import Any

import msgspec

LATEST = -1
LIMIT_MAX = 10_000
"""Of a listing, if nothing smaller is asked for."""


class Call(msgspec.Struct, frozen=True, tag=True, tag_field="call"):
    """Anything that can be asked."""


class Page(Call, frozen=True):
    """A stretch of a listing."""

    offset: int = 0
    limit: int = LIMIT_MAX


class NamedReference(msgspec.Struct, frozen=True):
    """A reference as a client writes it."""

    name: str
    subject: str
    version: int


class Proposal(Call, frozen=True):
    """A schema that a client shows."""

    subject: str
    schema: str
    type: str
    references: tuple[NamedReference, ...] = ()
    normalize: bool = False
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None


class Register(Proposal, frozen=True):
    """Makes it a version of the subject. Id and version: as another registry gave them."""

    id: int | None = None
    version: int | None = None


class LookUp(Proposal, frozen=True):
    """Which version of the subject it is."""

    deleted: bool = False
    form: str = ""
    anywhere: bool = False
    """In another context, if the default one has no such thing.

    Who asks so checks the rights to what is found; nodes that know no contexts do not.
    """


class CheckProposal(Proposal, frozen=True):
    """Whether it could be registered. `version`: only with that one beside it."""

    version: int | None = None
    verbose: bool = False


class ListSubjects(Page, frozen=True):
    prefix: str = ""
    deleted: bool = False
    deleted_only: bool = False
    everywhere: bool = False
    """In every context a subject whose name there begins so."""


class ListVersions(Page, frozen=True):
    subject: str = ""
    deleted: bool = False
    deleted_only: bool = False


class ListSchemas(Page, frozen=True):
    prefix: str = ""
    deleted: bool = False
    latest_only: bool = False
    everywhere: bool = False


class ListContexts(Page, frozen=True):
    prefix: str = ""


class GetVersion(Call, frozen=True):
    subject: str
    version: int
    deleted: bool = False
    form: str = ""
    qualified: bool = False
    """References are shown with their contexts."""
    anywhere: bool = False


class GetByMetadata(Call, frozen=True):
    """The last version whose metadata has all of these properties."""

    subject: str
    properties: dict[str, str]
    deleted: bool = False
    form: str = ""


class GetReferrers(Call, frozen=True):
    subject: str
    version: int
    deleted: bool = False


class GetById(Call, frozen=True):
    id: int
    subject: str | None = None
    form: str = ""
    with_highest_id: bool = False
    qualified: bool = False
    anywhere: bool = False


class GetByIdThere(GetById, frozen=True):
    """In a context other than the default one.

    Nodes that know no contexts would answer `GetById` with a schema of the default one, and refuse
    this.
    """


class GetByGuid(Call, frozen=True):
    guid: str
    form: str = ""


class ListIdsOfGuid(Call, frozen=True):
    guid: str


class ListPlaces(Page, frozen=True):
    """Subjects, or subjects and versions, that have an id."""

    id: int = 0
    subject: str | None = None
    deleted: bool = False
    with_versions: bool = False
    found_by: str | None = None
    """All subjects of the context in which the id is found by way of this one."""


class DeleteVersion(Call, frozen=True):
    subject: str
    version: int
    permanent: bool = False


class DeleteSubject(Call, frozen=True):
    subject: str
    permanent: bool = False


class DeleteContext(Call, frozen=True):
    """An empty one; `subject` is its name as the prefix of subjects, `:.sales:`."""

    subject: str


class GetConfig(Call, frozen=True):
    subject: str | None = None
    default_to_global: bool = False


class PutConfig(Call, frozen=True):
    subject: str | None = None
    level: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    group: str | None = None
    default_metadata: dict[str, Any] | None = None
    override_metadata: dict[str, Any] | None = None
    default_rules: dict[str, Any] | None = None
    override_rules: dict[str, Any] | None = None


class DeleteConfig(Call, frozen=True):
    subject: str | None = None


class GetMode(Call, frozen=True):
    subject: str | None = None
    default_to_global: bool = False


class PutMode(Call, frozen=True):
    mode: str
    subject: str | None = None
    force: bool = False


class DeleteMode(Call, frozen=True):
    subject: str | None = None
    recursive: bool = False


class Vouch(Call, frozen=True):
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
