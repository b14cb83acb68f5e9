from penstock.app.client import Client as Client
from penstock.app.message import LogMessage as LogMessage
from penstock.app.message import Message as Message
from penstock.app.outgoing import Outgoing as Outgoing
from penstock.app.payloads import InvalidPayload as InvalidPayload
from penstock.app.publish import BufferFull as BufferFull
from penstock.app.publish import Published as Published
from penstock.app.replies import TaskFailed as TaskFailed
from penstock.app.schemas import Registry as Registry
from penstock.app.sync import SyncClient as SyncClient
from penstock.app.task import Reject as Reject
from penstock.app.task import Retry as Retry
from penstock.app.task import Task as Task
from penstock.app.worker import Worker as Worker
from penstock.base.errors import Refused as Refused
from penstock.client.errors import Unreachable as Unreachable

__version__: str
