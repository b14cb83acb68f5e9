"""Groups clicks to visits: a user's clicks with gaps below half an hour.

    python -m examples.activity.data --brokers localhost:9092 --users 200
    penstock pipeline run examples/activity/pipeline.py --once
    penstock consume activity.visits

A visit is written once, when no later click can belong to it. Clicks that arrived more than a day
after their event time are in `activity.visits.dlq`.
"""

from typing import Any

from penstock.pipelines import Pipeline, Topic, dedup, reject_late, sessions

pipeline = Pipeline("activity", about="clicks made visits")


@pipeline.extract(
    "clicks",
    schema="user string not null, page string not null, at timestamp not null",
    to=Topic("activity.visits", partitions=2),
    key="user",
)
def visits(clicks: Any) -> Any:
    clicks = reject_late(clicks, "at", "1 day")
    clicks = dedup(clicks, "1 hour", by=["user", "at"], event_time="at")
    return sessions(
        clicks,
        ["user"],
        gap="30 minutes",
        event_time="at",
        late="1 hour",
        clicks="count(*)",
        pages="size(collect_set(page))",
        first_page="min_by(page, at)",
    )
