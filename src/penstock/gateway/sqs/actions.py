"""Table of the SQS actions with their request types and handlers."""

from penstock.gateway.sqs import move_tasks, queues, receive, requests, send, settle
from penstock.gateway.sqs.call import Action

SQS_ACTIONS = {
    "CancelMessageMoveTask": Action(
        requests.CancelMessageMoveTask, move_tasks.cancel_message_move_task
    ),
    "ChangeMessageVisibility": Action(
        requests.ChangeMessageVisibility, settle.change_message_visibility
    ),
    "ChangeMessageVisibilityBatch": Action(
        requests.ChangeMessageVisibilityBatch, settle.change_message_visibility_batch
    ),
    "CreateQueue": Action(requests.CreateQueue, queues.create_queue),
    "DeleteMessage": Action(requests.DeleteMessage, settle.delete_message),
    "DeleteMessageBatch": Action(requests.DeleteMessageBatch, settle.delete_message_batch),
    "DeleteQueue": Action(requests.DeleteQueue, queues.delete_queue),
    "GetQueueAttributes": Action(requests.GetQueueAttributes, queues.get_queue_attributes),
    "GetQueueUrl": Action(requests.GetQueueUrl, queues.get_queue_url),
    "ListDeadLetterSourceQueues": Action(
        requests.ListDeadLetterSourceQueues, queues.list_dead_letter_source_queues
    ),
    "ListMessageMoveTasks": Action(
        requests.ListMessageMoveTasks, move_tasks.list_message_move_tasks
    ),
    "ListQueueTags": Action(requests.ListQueueTags, queues.list_queue_tags),
    "ListQueues": Action(requests.ListQueues, queues.list_queues),
    "PurgeQueue": Action(requests.PurgeQueue, queues.purge_queue),
    "ReceiveMessage": Action(requests.ReceiveMessage, receive.receive_message),
    "SendMessage": Action(requests.SendMessage, send.send_message),
    "SendMessageBatch": Action(requests.SendMessageBatch, send.send_message_batch),
    "SetQueueAttributes": Action(requests.SetQueueAttributes, queues.set_queue_attributes),
    "StartMessageMoveTask": Action(
        requests.StartMessageMoveTask, move_tasks.start_message_move_task
    ),
    "TagQueue": Action(requests.TagQueue, queues.tag_queue),
    "UntagQueue": Action(requests.UntagQueue, queues.untag_queue),
}
