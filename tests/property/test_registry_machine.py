"""The registry's machine against its laws, whatever is asked of it in whatever order.

What a new leader replays is what the old one knew; an id means one schema of its context for ever,
and nodes that know no contexts see those of the default one; versions of a
subject only grow while any of it is left; what is referred to is there.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.registry import requests
from penstock.state.registry.errors import Rejected
from penstock.state.registry.subject_names import context_of
from tests.unit.state.registry.driver import ONE, OTHER, TWO, Driver, contents

SUBJECTS = st.sampled_from(["a", "b", "c", ":.x:a", ":.x:b", ":.y:a"])
SCOPES = st.none() | SUBJECTS | st.sampled_from([":.x:", ":.__GLOBAL:"])
VERSIONS = st.sampled_from([1, 2, 3, requests.LATEST])
REFERRING = '{"type":"array","items":"R"}'
SCHEMAS = st.sampled_from([ONE, TWO, OTHER, '"string"'])
FLAGS = st.booleans()


def referring(subject: str, to: str, version: int) -> requests.Register:
    reference = requests.NamedReference("R", to, version)
    return requests.Register(subject, REFERRING, "AVRO", (reference,))


CALLS = st.one_of(
    st.builds(requests.Register, SUBJECTS, SCHEMAS, st.just("AVRO")),
    st.builds(
        requests.Register,
        SUBJECTS,
        SCHEMAS,
        st.just("AVRO"),
        id=st.integers(1, 6),
        version=st.integers(1, 4),
    ),
    st.builds(referring, SUBJECTS, SUBJECTS, VERSIONS),
    st.builds(requests.DeleteVersion, SUBJECTS, VERSIONS, FLAGS),
    st.builds(requests.DeleteSubject, SUBJECTS, FLAGS),
    st.builds(requests.DeleteContext, st.sampled_from([":.x:", ":.y:"])),
    st.builds(
        requests.PutConfig,
        SCOPES,
        st.sampled_from(["NONE", "BACKWARD", "FULL_TRANSITIVE", "sideways"]),
    ),
    st.builds(requests.DeleteConfig, SCOPES),
    st.builds(
        requests.PutMode,
        st.sampled_from(["READWRITE", "READONLY", "IMPORT"]),
        SCOPES,
        st.just(True),
    ),
    st.builds(requests.DeleteMode, SCOPES, FLAGS),
)


@settings(max_examples=150)
@given(st.lists(CALLS, max_size=40))
def test_invariants_hold_after_any_calls(asked: list[requests.AnyCall]) -> None:
    driver = Driver()
    driver.register("a")
    driver.register("b", REFERRING, ("R", "a", 1))
    meant: dict[tuple[str, int], str] = {}
    for call in asked:
        logged = len(driver.log)
        try:
            answer = driver.ask(call)
        except Rejected:
            assert len(driver.log) == logged, "a refusal changed something"
            continue
        if isinstance(call, requests.DeleteContext):
            deleted = context_of(call.subject)
            meant = {key: guid for key, guid in meant.items() if key[0] != deleted}
        if isinstance(call, requests.Register):
            context = context_of(call.subject)
            kept = driver.state.contexts[context].by_id[answer["id"]]
            assert len({one.guid for one in kept.values()}) == 1
            (guid,) = {one.guid for one in kept.values()}
            given_by_us = call.id is None
            assert not given_by_us or meant.setdefault((context, answer["id"]), guid) == guid
            meant[context, answer["id"]] = guid
        for rows in driver.state.subjects.values():
            assert list(rows) == sorted(rows)
        for place, referrers in driver.state.referrers.items():
            assert referrers
            assert driver.state.get(*place, deleted=True) is not None, "a reference hangs"
        assert contents(driver.replayed()) == contents(driver.state)
        older, default = driver.read_before(), driver.state.contexts["."]
        assert set(older.contexts) == {"."}
        assert older.contexts["."].by_id == default.by_id
        assert older.contexts["."].highest_id == default.highest_id


IMPORTS = st.one_of(
    st.builds(
        requests.Register,
        SUBJECTS,
        SCHEMAS,
        st.just("AVRO"),
        id=st.integers(1, 6),
        version=st.integers(1, 2),
    ),
    st.builds(requests.DeleteVersion, SUBJECTS, st.sampled_from([1, 2]), FLAGS),
)


@settings(max_examples=100)
@given(st.lists(IMPORTS, max_size=12))
def test_ids_of_imports_are_not_reused_after_a_restart(
    asked: list[requests.AnyCall],
) -> None:
    driver = Driver()
    driver.ask(requests.PutMode("IMPORT"))
    highest = 0
    for call in asked:
        try:
            answer = driver.ask(call)
        except Rejected:
            continue
        if isinstance(call, requests.Register):
            highest = max(highest, answer["id"])
        assert contents(driver.replayed()) == contents(driver.state)
    driver.shard.state = driver.replayed()
    driver.ask(requests.PutMode("READWRITE"))
    assert driver.register("new", '"bytes"') == highest + 1
