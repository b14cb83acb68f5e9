"""The generated reference is what the code says today, and says something about everything."""

import pytest

from docs import gen
from penstock.api.routes import ROUTES
from penstock.cluster.config_table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS


@pytest.mark.parametrize("name", gen.PAGES_WRITTEN)
def test_reference_pages_are_up_to_date(name: str) -> None:
    written = (gen.REFERENCE / name).read_text(encoding="utf-8")
    assert written == gen.PAGES_WRITTEN[name](), "run `make reference`"


def test_every_config_is_on_the_page_with_a_meaning() -> None:
    page = gen.configs_page()
    for config in (*TOPIC_CONFIGS, *GROUP_CONFIGS, *BROKER_CONFIGS):
        assert f"| `{config.name}` |" in page
        assert len(config.doc) > 8, config.name


def test_every_api_is_on_the_page_with_a_meaning() -> None:
    page = gen.apis_page()
    for route in ROUTES:
        assert f"| {route.key} | {route.name} |" in page
        assert len(route.request.__doc__ or "") > 8, route.name


def test_every_metric_is_on_the_page_with_a_meaning_and_a_sound_name() -> None:
    page = gen.metrics_page()
    for family in gen.families():
        assert f"| `{family.name}` |" in page
        assert family.name.startswith("penstock_")
        assert family.help.endswith("."), family.name
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name


def test_every_command_and_option_has_help() -> None:
    silent = []
    for path, command in gen.commands():
        if not command.help:
            silent.append(" ".join(path))
        silent += [
            f"{' '.join(path)} {param.name}"
            for param in command.params
            if not getattr(param, "hidden", False) and not getattr(param, "help", None)
        ]
    assert not silent
