"""Declarations of pipelines: defaults, order of stages, and refused declarations."""

from typing import Any

import pytest

from penstock.pipelines import Files, Latest, Pipeline, PipelineError, Topic


def nothing(rows: Any) -> Any:
    return rows


def test_default_names_consist_of_pipeline_and_stage() -> None:
    pipeline = Pipeline("orders")
    assert pipeline.extract("raw", to="valid")(nothing) is nothing
    stage = pipeline.stage("nothing")
    assert stage.id == "orders/nothing"
    assert stage.group == "orders.nothing"
    assert stage.dlq == "orders.nothing.dlq"
    assert stage.checkpoint == "orders/nothing/v1"
    assert (stage.source, stage.target) == (Topic("raw"), Topic("valid"))


def test_stage_reads_the_target_of_the_previous_one() -> None:
    pipeline = Pipeline("p")
    pipeline.extract("a", to=Topic("b", compact=True), name="first")(nothing)
    pipeline.transform(to="c", name="second")(nothing)
    assert str(pipeline.stage("second").source) == "b"
    target = pipeline.stage("first").target
    assert isinstance(target, Topic)
    assert target.all_configs() == {"cleanup.policy": "compact"}


def test_stages_are_ordered_by_their_topics() -> None:
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


def test_cycle_of_stages_is_refused() -> None:
    pipeline = Pipeline("p")
    pipeline.extract("a", to="b", name="one")(nothing)
    pipeline.transform("b", to="c", name="two")(nothing)
    pipeline.transform("c", to="a", name="three")(nothing)
    with pytest.raises(PipelineError, match="one -> three -> two -> one"):
        pipeline.in_order()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"to": "raw"}, "'raw'"),
        ({"to": "x", "mode": "upsert"}, "'upsert'"),
        ({"to": "x", "schema": "a int", "subject": "s"}, "schema and subject"),
        ({"to": "x", "every": "soon"}, "soon"),
        ({"to": "x", "begin": "yesterday"}, "yesterday"),
        ({"to": "x", "version": 0}, "version"),
        ({"to": "x", "name": "a/b"}, "'a/b'"),
        ({"to": ""}, "name of a topic"),
    ],
)
def test_invalid_stage_is_refused_at_declaration(options: dict[str, Any], named: str) -> None:
    with pytest.raises(PipelineError, match=named):
        Pipeline("p").extract("raw", **options)(nothing)


def test_invalid_pipeline_is_refused() -> None:
    pipeline = Pipeline("p")
    with pytest.raises(PipelineError, match="has no source"):
        pipeline.transform(to="x")(nothing)
    with pytest.raises(PipelineError, match="has no stages"):
        pipeline.in_order()
    with pytest.raises(PipelineError, match="needs tables"):
        pipeline.enrich("a", to="b")
    pipeline.load("a", to=Files("/x"))(nothing)
    with pytest.raises(PipelineError, match="defined twice"):
        pipeline.load("a", to=Files("/y"))(nothing)
    with pytest.raises(PipelineError, match="name a source topic"):
        pipeline.transform(to="z", name="after")(nothing)
    with pytest.raises(PipelineError, match="did you mean 'nothing'"):
        pipeline.stage("noting")
    with pytest.raises(PipelineError, match="'a b'"):
        Pipeline("a b")
