"""Declaring pipelines: what is made of what was not said, and what is refused."""

from typing import Any

import pytest

from penstock.pipelines import Files, Latest, Pipeline, PipelineError, Topic


def nothing(rows: Any) -> Any:
    return rows


def test_what_is_not_said_has_names_that_can_be_found() -> None:
    pipeline = Pipeline("orders")
    assert pipeline.extract("raw", to="valid")(nothing) is nothing
    stage = pipeline.stage("nothing")
    assert stage.id == "orders/nothing"
    assert stage.group == "orders.nothing"
    assert stage.dlq == "orders.nothing.dlq"
    assert stage.checkpoint == "orders/nothing/v1"
    assert (stage.source, stage.target) == (Topic("raw"), Topic("valid"))


def test_a_stage_reads_what_the_one_before_wrote() -> None:
    pipeline = Pipeline("p")
    pipeline.extract("a", to=Topic("b", compact=True), name="first")(nothing)
    pipeline.transform(to="c", name="second")(nothing)
    assert str(pipeline.stage("second").source) == "b"
    target = pipeline.stage("first").target
    assert isinstance(target, Topic)
    assert target.all_configs() == {"cleanup.policy": "compact"}


def test_stages_are_put_in_the_order_of_their_topics() -> None:
    pipeline = Pipeline("p")
    pipeline.load("c", to=Files("/x"), name="last")(nothing)
    table = {"t": Latest("d", "id int")}
    pipeline.enrich("b", to="c", name="middle", tables=table)(nothing)
    pipeline.extract("a", to="b", name="first")(nothing)
    pipeline.extract("e", to="d", name="table")(nothing)
    names = [stage.name for stage in pipeline.in_order()]
    assert names == ["first", "table", "middle", "last"]
    assert pipeline.writer_of("c") == pipeline.stage("middle")
    assert pipeline.writer_of("a") is None


def test_stages_that_feed_each_other_are_refused() -> None:
    pipeline = Pipeline("p")
    pipeline.extract("a", to="b", name="one")(nothing)
    pipeline.transform("b", to="c", name="two")(nothing)
    pipeline.transform("c", to="a", name="three")(nothing)
    with pytest.raises(PipelineError, match="feed each other: one -> three -> two -> one"):
        pipeline.in_order()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "raw"}, "read what it writes"),
        ({"to": "x", "mode": "upsert"}, "mode is one of append, update, complete"),
        ({"to": "x", "schema": "a int", "subject": "s"}, "not both"),
        ({"to": "x", "every": "soon"}, "soon"),
        ({"to": "x", "begin": "yesterday"}, "yesterday"),
        ({"to": "x", "version": 0}, "at least 1"),
        ({"to": "x", "name": "a/b"}, "no name"),
        ({"to": ""}, "needs a name"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        Pipeline("p").extract("raw", **options)(nothing)


def test_other_refusals() -> None:
    pipeline = Pipeline("p")
    with pytest.raises(PipelineError, match="what does it read"):
        pipeline.transform(to="x")(nothing)
    with pytest.raises(PipelineError, match="has no stages"):
        pipeline.in_order()
    with pytest.raises(PipelineError, match="has tables"):
        pipeline.enrich("a", to="b")
    pipeline.load("a", to=Files("/x"))(nothing)
    with pytest.raises(PipelineError, match="there twice"):
        pipeline.load("a", to=Files("/y"))(nothing)
    with pytest.raises(PipelineError, match="name the topic it reads"):
        pipeline.transform(to="z", name="after")(nothing)
    with pytest.raises(PipelineError, match="did you mean 'nothing'"):
        pipeline.stage("noting")
    with pytest.raises(PipelineError, match="no name for a pipeline"):
        Pipeline("a b")
