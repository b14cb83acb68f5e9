"""`Results`: sums of counts, and points never reached."""

from simulation.results import Results


def test_results_add_up_and_list_missing_points() -> None:
    one, other = Results(seeds=1, simulated_s=1800), Results(seeds=1, simulated_s=1800)
    one.operations["Produce"] += 2
    other.operations["Produce"] += 3
    other.faults["power cut"] += 1
    other.points["fenced"] += 1
    one.add(other)
    assert one.missing(["fenced", "stale"]) == ["stale"]
    report = one.report(["fenced", "stale"])
    assert "2 seeds, 1.00 simulated hours, 5 operations, 1 faults" in report
    assert "power cut 1" in report
    assert report.endswith("never reached: stale")
