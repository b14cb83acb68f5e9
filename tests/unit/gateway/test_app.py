"""The application: request counters, landing page, metrics."""

from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.http.metrics import render
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


@run_with(on_web)
async def test_requests_are_counted_by_route_and_status(web: Web) -> None:
    await web.publish("x")
    await web.post("/topics/t/messages", {"payload": 1, "priority": 10})
    await web.post("/topics/t/messages", b"{")
    await web.get("/topics/nowhere")
    text = render(web.node.ctx.metrics.catalogue)[0].decode()
    name = "penstock_http_requests_total"
    route = 'route="POST /topics/{name}/messages"'
    for status in (200, 400, 422):
        assert f'{name}{{{route},status="{status}"}} 1' in text
    assert f'{name}{{route="GET /topics/{{name}}",status="404"}} 1' in text
    assert f"penstock_http_request_seconds_count{{{route}}} 3" in text


@run_with(on_web)
async def test_landing_page_lists_every_route(web: Web) -> None:
    links = (await web.get("/")).json["links"]
    assert "GET /topics/{name}/poll" in links
    assert "/docs" in links


@run_with(on_web)
async def test_metrics_name_topics_only_with_cluster_describe_permission(web: Web) -> None:
    add = web.state.catalogue.add
    add("penstock_one", "gauge", "One.", read=lambda: [((), 1.0)])
    for label in ("topic", "group"):
        name, rows = f"penstock_by_{label}", [(("secret",), 1.0)]
        add(name, "gauge", "One.", (label,), read=lambda rows=rows: rows)  # type: ignore[misc]
    assert (await web.get("/metrics")).body.count(b"secret") == 2
    web.node.rights.deny(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    shown = (await web.get("/metrics")).body
    assert b"penstock_one 1" in shown
    assert b"secret" not in shown
