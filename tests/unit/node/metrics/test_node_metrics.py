"""A whole node scraped: what was counted is there, and what is watched appears once it is."""

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from penstock.gateway.http.metrics import render
from penstock.node.node import Node
from tests.run_with import in_new_loop, run_with
from tests.unit.broker.server.world import fetch_frame, produce_frame
from tests.unit.node.test_node import config_of, create, exchange


def scrape(node: Node) -> dict[str, dict[tuple[str, ...], float]]:
    body, _ = render(node.metrics.catalogue)
    return {
        sample.name: {
            tuple(s.labels.values()): s.value for s in family.samples if s.name == sample.name
        }
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


@run_with(in_new_loop)
async def test_traffic_is_counted_by_topic_and_syncs_are_timed(*, tmp_path: Path) -> None:
    node = Node(config_of(tmp_path))
    kafka, _ = await node.start()
    try:
        await create(node)
        await exchange(kafka, produce_frame(1))
        await exchange(kafka, fetch_frame(2))
        found = scrape(node)
        assert found["penstock_topic_records_in_total"] == {("t",): 1}
        assert found["penstock_topic_records_out_total"] == {("t",): 1}
        assert found["penstock_records_out_total"] == {(): 1}
        assert found["penstock_message_age_seconds_count"][("fetch",)] == 1
        assert found["penstock_topic_bytes_in_total"][("t",)] > 60
        assert (
            found["penstock_topic_bytes_out_total"][("t",)]
            == found["penstock_bytes_out_total"][()]
            > 0
        )
        assert found["penstock_sync_seconds_count"][()] >= 1
        assert 0 < found["penstock_disk_used_percent"][()] <= 100
    finally:
        await node.stop()


@run_with(in_new_loop)
async def test_scrape_starts_the_gauge_refresh(*, tmp_path: Path) -> None:
    node = Node(config_of(tmp_path))
    await node.start()
    try:
        await create(node, partitions=3)
        # The first look counts those that are open by then; the next one is a minute later.
        while len(list(node.partitions.led())) < 3:
            await asyncio.sleep(0.01)
        assert node.watching.skew.topics == {}
        scrape(node)
        await asyncio.sleep(0)
        while "penstock_topic_partitions_led" not in scrape(node):
            await asyncio.sleep(0.01)
        assert scrape(node)["penstock_topic_partitions_led"] == {("t",): 3}
        while not scrape(node)["penstock_loop_lag_seconds_count"][()]:
            await asyncio.sleep(0.01)
    finally:
        await node.stop()
