"""AppendAudit (30032): Penstock's own, among its nodes. It goes to whoever leads `__audit`."""

from penstock.wire.schema import bytes_, int16, message, string


@message(key=30032, versions=(0, 0), flexible=0)
class AppendAuditRequest:
    """One batch of entries."""

    batch: bytes = bytes_()


@message(key=30032, versions=(0, 0), flexible=0)
class AppendAuditResponse:
    """Answered when it is committed."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
