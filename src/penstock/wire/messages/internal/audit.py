"""AppendAudit (30032), between Penstock's nodes. Sent to the leader of the topic `__audit`."""

from penstock.wire.schema import bytes_, int16, message, string


@message(key=30032, versions=(0, 0), flexible=0)
class AppendAuditRequest:
    """Appends one batch of audit entries."""

    batch: bytes = bytes_()


@message(key=30032, versions=(0, 0), flexible=0)
class AppendAuditResponse:
    """Result, sent once the batch is committed."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
