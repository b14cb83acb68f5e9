"""Traffic by topic: bounded names, and no counter that falls or changes its name."""

from penstock.broker.api.metrics import NAMED_MAX, OTHERS, Traffic


def test_traffic_is_counted_by_topic() -> None:
    traffic = Traffic()
    traffic["a"].bytes_in += 5
    traffic["b"].bytes_in += 7
    traffic["a"].bytes_in += 5
    assert {name: counts.bytes_in for name, counts in traffic.named()} == {"a": 10, "b": 7}


def test_topics_beyond_the_limit_share_one_name() -> None:
    traffic = Traffic()
    for at in range(NAMED_MAX + 3):
        traffic[f"t{at}"].records_in += 1
    shown = dict(traffic.named())
    assert len(shown) == NAMED_MAX + 1
    assert shown[OTHERS].records_in == 3
    traffic.forget_all_but({f"t{at}" for at in range(1, NAMED_MAX + 3)})
    traffic[f"t{NAMED_MAX}"].records_in += 1
    assert dict(traffic.named())[OTHERS].records_in == 4


def test_deleted_topic_frees_its_name() -> None:
    traffic = Traffic()
    for at in range(NAMED_MAX):
        traffic[f"t{at}"].records_in += 1
    traffic.forget_all_but({f"t{at}" for at in range(1, NAMED_MAX)})
    traffic["new"].records_in += 1
    shown = dict(traffic.named())
    assert shown["new"].records_in == 1
    assert "t0" not in shown
    assert OTHERS not in shown
