"""Configs of one consumer group: they apply from the next heartbeat on."""

from penstock.base.errors import ErrorCode
from penstock.state.groups.config import ConsumerGroupConfig, GroupConfig
from tests.unit.state.groups.driver import Driver


class Settings:
    """Configs that a test may change at any time."""

    def __init__(self) -> None:
        self.by_group: dict[str, ConsumerGroupConfig] = {}

    def driver(self) -> Driver:
        config = GroupConfig(
            consumer_config_of=lambda group: self.by_group.get(group, ConsumerGroupConfig())
        )
        driver = Driver(config)
        driver.set_topics(t=4)
        return driver


def test_shorter_session_holds_from_the_next_heartbeat_on() -> None:
    settings = Settings()
    driver = settings.driver()
    driver.beat("g", "m", 0, topics=("t",))
    driver.beat("other", "m", 0, topics=("t",))
    settings.by_group["g"] = ConsumerGroupConfig(session_timeout_ms=10_000)
    driver.sleep(20_000)
    assert driver.beat("g", "m", 1).error_code == ErrorCode.NONE, "it still had the old session"
    driver.beat("other", "m", 1)
    driver.sleep(11_000)
    assert driver.beat("g", "m", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat("other", "m", 1).error_code == ErrorCode.NONE, "it has its own configs"


def test_members_get_the_heartbeat_interval_of_their_group() -> None:
    settings = Settings()
    driver = settings.driver()
    assert driver.beat("g", "m", 0, topics=("t",)).heartbeat_interval_ms == 5_000
    settings.by_group["g"] = ConsumerGroupConfig(heartbeat_interval_ms=1_500)
    assert driver.beat("g", "m", 1).heartbeat_interval_ms == 1_500
    del settings.by_group["g"]
    assert driver.beat("g", "m", 1).heartbeat_interval_ms == 5_000


def test_member_joining_within_the_assignment_interval_waits_for_its_end() -> None:
    settings = Settings()
    settings.by_group["g"] = ConsumerGroupConfig(assignment_interval_ms=1_000)
    driver = settings.driver()
    first = driver.beat("g", "a", 0, topics=("t",))
    assert driver.owned(first) == {"t": [0, 1, 2, 3]}
    driver.sleep(400)
    second = driver.beat("g", "b", 0, topics=("t",))
    assert second.error_code == ErrorCode.NONE
    assert driver.owned(second) == {}
    assert second.heartbeat_interval_ms == 600, "it is to ask again when the interval is over"
    driver.beat("g", "c", 0, topics=("t",))
    assert driver.beat("g", "a", first.member_epoch).assignment is None
    driver.sleep(600)
    # One assignment for both newcomers: the first owner gives up what the two are to have.
    told = driver.beat("g", "a", first.member_epoch)
    assert len(driver.owned(told)["t"]) == 2
    assert told.heartbeat_interval_ms == 5_000


def test_members_do_not_wait_without_an_assignment_interval() -> None:
    driver = Settings().driver()
    first = driver.beat("g", "a", 0, topics=("t",))
    driver.beat("g", "b", 0, topics=("t",))
    assert len(driver.owned(driver.beat("g", "a", first.member_epoch))["t"]) == 2
