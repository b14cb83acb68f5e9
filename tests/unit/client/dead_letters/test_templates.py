"""Templates of error messages: similar messages share one, different ones do not."""

import random

import pytest

from penstock.client.dead_letters.templates import KNOWN_MAX, TEMPLATES_MAX, Templates, matches


def texts(*messages: str, error_class: str = "Error") -> list[str]:
    """Returns the final template of each message."""
    templates = Templates()
    indexes = [templates.add(error_class, message) for message in messages]
    return [templates.text(index) for index in indexes]


@pytest.mark.parametrize(
    ("messages", "template"),
    [
        (["unknown postcode for Graz", "unknown postcode for Wien"], "unknown postcode for <*>"),
        (["timeout after 30 s", "timeout after 1.5 s"], "timeout after <*> s"),
        (["no key 'a b c'", "no key 'd'"], "no key <*>"),
        (["order 3f2a9c1e failed", "order 9c1e3f2a failed"], "order <*> failed"),
        (["", ""], ""),
        (["missing", "missing"], "missing"),
    ],
)
def test_similar_messages_share_a_template(messages: list[str], template: str) -> None:
    assert texts(*messages) == [template] * len(messages)


def test_different_messages_have_templates_of_their_own() -> None:
    messages = ["connection refused by peer", "unknown postcode for Graz", "refused", "timeout"]
    assert texts(*messages) == messages


def test_error_classes_do_not_share_templates() -> None:
    templates = Templates()
    assert templates.add("A", "no x") != templates.add("B", "no x")


def test_final_template_matches_all_its_messages() -> None:
    draw = random.Random(1)
    words = ["disk", "full", "peer", "lost", "at", "17", "'x'", "graz"]
    messages = [" ".join(draw.choices(words, k=draw.randint(0, 6))) for _ in range(500)]
    for message, template in zip(messages, texts(*messages), strict=True):
        assert matches(template, message), (template, message)


def test_number_of_templates_compared_and_remembered_is_bounded() -> None:
    templates = Templates()
    letters = "ghijklmnop"
    for number in range(KNOWN_MAX + 50):
        word = "".join(letters[int(digit)] for digit in str(number))
        templates.add("Error", f"{word} {word}")
    assert len(templates._known) == KNOWN_MAX
    assert len(templates._templates) == TEMPLATES_MAX
    last = templates.add("Error", "zz yy")
    assert templates.text(last) == "<*> <*>"
