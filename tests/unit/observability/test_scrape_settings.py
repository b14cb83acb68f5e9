"""The scrape settings name every node and the job that the alerts look for."""

from penstock.observability.alerts import Thresholds, rules
from penstock.observability.scrape_settings import JOB, settings


def test_every_node_is_scraped_under_the_job_of_the_alerts() -> None:
    text = settings(["a:1", "[::1]:2"], "rules.yml", 30)
    assert "          - 'a:1'\n          - '[::1]:2'\n" in text
    assert "scrape_interval: 30s" in text
    assert "    scheme: http\n" in text
    assert "    scheme: https\n" in settings(["a:1"], "rules.yml", 30, has_tls=True)
    assert "  - 'rules.yml'" in text
    assert f"job_name: {JOB}" in text
    assert f'up{{job="{JOB}"}}' in rules(Thresholds())
