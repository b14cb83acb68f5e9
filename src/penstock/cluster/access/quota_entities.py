"""Path of an entity's quotas in the store: `user/alice/client-id/<default>`.

Names may contain any character, so they are percent-encoded; so no name equals the default's path.
"""

from urllib.parse import quote, unquote

from penstock.security.quotas import DEFAULT, Default, Entity, EntityName, EntityType

DEFAULT_PATH = "<default>"


def path_of(entity: Entity) -> str:
    return "/".join(
        f"{kind}/{DEFAULT_PATH if isinstance(name, Default) else quote(name, safe='')}"
        for kind, name in entity.parts()
    )


def entity_at(path: str) -> Entity:
    """Parses a path made by `path_of`."""
    steps = iter(path.split("/"))
    found: dict[str, EntityName] = {}
    for kind, name in zip(steps, steps, strict=True):
        found[kind] = DEFAULT if name == DEFAULT_PATH else unquote(name)
    user, client_id, ip = (found.get(kind) for kind in EntityType)
    return Entity(user, client_id, ip)
