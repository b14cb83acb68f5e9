"""State of the registry: versions of subjects, ids, references, configs and modes.

Only `apply` changes it, from records; everything else reads. Deleted versions stay until they are
deleted permanently, and an id resolves as long as one version has it. Each context numbers its
schemas separately; subjects, configs and modes have their context as a prefix.
"""

from collections.abc import Iterator

from penstock.state.registry.compatibility_check import (
    DEFAULT_LEVEL,
    DEFAULT_MODE,
    Level,
    SubjectMode,
)
from penstock.state.registry.records import (
    KeptConfig,
    KeptContext,
    KeptId,
    KeptMode,
    KeptSchema,
    read_record,
)
from penstock.state.registry.subject_names import (
    DEFAULT_CONTEXT,
    EVERYWHERE,
    context_of,
    join_subject,
    seen_from,
)

SubjectVersion = tuple[str, int]
"""A subject and a version of it."""


class Numbering:
    """Ids of one context."""

    __slots__ = ("by_guid", "by_id", "highest_id")

    def __init__(self) -> None:
        self.by_id: dict[int, dict[SubjectVersion, KeptSchema]] = {}
        self.by_guid: dict[str, dict[SubjectVersion, KeptSchema]] = {}
        self.highest_id = 0


class RegistryState:
    """State built from the records applied so far."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, KeptSchema]] = {}
        """Versions in ascending order."""
        self.contexts: dict[str, Numbering] = {DEFAULT_CONTEXT: Numbering()}
        """Ids by context; always contains the default one."""
        self.referrers: dict[SubjectVersion, dict[SubjectVersion, None]] = {}
        """Versions that refer to a version, deleted ones included."""
        self.configs: dict[str | None, KeptConfig] = {}
        self.modes: dict[str | None, SubjectMode] = {}
        """Like `configs`: by subject, or by context; None: the default context."""
        self.count = 0
        self.text_bytes = 0
        self.revision = 0
        """Grows with every record."""

    # -- applying ---------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        record = read_record(key, value)
        if record is None:
            return
        self.revision += 1
        read, kept = record
        if isinstance(kept, KeptSchema):
            self._forget(kept.place)
            self._keep(kept)
        elif read.version is not None and read.subject is not None:
            self._forget((read.subject, read.version))
        elif isinstance(kept, KeptConfig):
            self.configs[read.subject] = kept
        elif isinstance(kept, KeptMode):
            self.modes[read.subject] = SubjectMode(kept.mode)
        elif isinstance(kept, KeptId):
            self._given(DEFAULT_CONTEXT, kept.id)
        elif isinstance(kept, KeptContext):
            self._given(kept.context, kept.highestId)
        elif read.context is not None:
            self._forget_context(read.context)
        elif read.keytype == "CONFIG":
            self.configs.pop(read.subject, None)
        elif read.keytype == "MODE":
            self.modes.pop(read.subject, None)

    def _keep(self, kept: KeptSchema) -> None:
        place = kept.place
        versions = self.subjects.setdefault(kept.subject, {})
        is_last = not versions or kept.version > next(reversed(versions))
        versions[kept.version] = kept
        if not is_last:
            self.subjects[kept.subject] = dict(sorted(versions.items()))
        numbering = self._given(kept.context, kept.id)
        numbering.by_id.setdefault(kept.id, {})[place] = kept
        numbering.by_guid.setdefault(kept.guid, {})[place] = kept
        for one in kept.referred:
            self.referrers.setdefault((one.subject, one.version), {})[place] = None
        self.count += 1
        self.text_bytes += len(kept.schema)

    def _given(self, context: str, schema_id: int) -> Numbering:
        numbering = self.contexts.setdefault(context, Numbering())
        numbering.highest_id = max(numbering.highest_id, schema_id)
        return numbering

    def _forget_context(self, context: str) -> None:
        """Drops a context if it is empty: schemas in it need its ids."""
        if context != DEFAULT_CONTEXT and not self.numbering(context).by_id:
            self.contexts.pop(context, None)

    def _forget(self, place: SubjectVersion) -> None:
        subject, version = place
        versions = self.subjects.get(subject, {})
        gone = versions.pop(version, None)
        if gone is None:
            return
        if not versions:
            del self.subjects[subject]
        numbering = self.contexts[gone.context]
        for index, key in ((numbering.by_id, gone.id), (numbering.by_guid, gone.guid)):
            places = index[key]  # type: ignore[index]
            del places[place]
            if not places:
                del index[key]  # type: ignore[arg-type]
        for one in gone.referred:
            referrers = self.referrers.get((one.subject, one.version), {})
            referrers.pop(place, None)
            if not referrers:
                self.referrers.pop((one.subject, one.version), None)
        self.count -= 1
        self.text_bytes -= len(gone.schema)

    # -- looking up -------------------------------------------------------------------------

    def numbering(self, context: str) -> Numbering:
        """Ids of a context; empty for a missing one."""
        return self.contexts.get(context) or Numbering()

    def others(self) -> list[str]:
        """All contexts but the default one."""
        return sorted(self.contexts.keys() - {DEFAULT_CONTEXT})

    def versions(self, subject: str, *, deleted: bool = False) -> list[KeptSchema]:
        """Versions of a subject, oldest first; with `deleted`, including deleted ones."""
        kept = self.subjects.get(subject, {})
        return [one for one in kept.values() if deleted or not one.deleted]

    def get(self, subject: str, version: int, *, deleted: bool = False) -> KeptSchema | None:
        """Returns a version; a negative number means the last one."""
        if version < 0:
            known = self.versions(subject, deleted=deleted)
            return known[-1] if known else None
        found = self.subjects.get(subject, {}).get(version)
        return found if found is not None and (deleted or not found.deleted) else None

    def referred_by(self, place: SubjectVersion, *, deleted: bool) -> Iterator[KeptSchema]:
        for subject, version in self.referrers.get(place, {}):
            found = self.get(subject, version, deleted=deleted)
            if found is not None:
                yield found

    def config_of(self, subject: str) -> KeptConfig | None:
        """Settings of a subject, or else of its context."""
        return next(self.configs_of(subject), None)

    def configs_of(self, subject: str | None) -> Iterator[KeptConfig]:
        """Settings that apply to a subject, the most specific first."""
        return (self.configs[one] for one in _scopes(subject) if one in self.configs)

    def level_of(self, subject: str) -> Level:
        for known in self.configs_of(subject):
            if known.compatibilityLevel is not None:
                return Level(known.compatibilityLevel)
        return DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        for known in self.configs_of(subject):
            if known.normalize is not None:
                return known.normalize
        return False

    def mode_of(self, subject: str | None) -> SubjectMode:
        if self.modes.get(None) is SubjectMode.READONLY_OVERRIDE:
            return SubjectMode.READONLY
        return next(self.modes_of(subject), DEFAULT_MODE)

    def modes_of(self, subject: str | None) -> Iterator[SubjectMode]:
        return (self.modes[one] for one in _scopes(subject) if one in self.modes)

    def named(self, subject: str) -> str:
        """The subject itself, or the one that it is an alias of."""
        config = self.configs.get(subject)
        if config is None or not config.alias:
            return subject
        return seen_from(context_of(subject), config.alias)


def _scopes(subject: str | None) -> tuple[str | None, ...]:
    """Scopes that may hold settings of a subject: its own, its context's, that of all contexts."""
    return subject, join_subject(context_of(subject), "") or None, EVERYWHERE
