"""How fast something may go on: a bucket that fills steadily and may be overdrawn.

What was done is taken out afterwards, whatever is left, for by then it is done; whoever has
overdrawn waits until the debt is paid off. So a rate holds over any stretch of time, but for one
full bucket and one last helping.

Kafka measures the same quotas over sampled windows and assumes that a newcomer's past windows were
empty, which lets it take ten seconds' worth at once. A bucket of one window does not, and needs no
samples.
"""

SECONDS_MAX = 3_600.0
"""Nobody waits longer than this at a time."""


class Bucket:
    """Starts full. The rate is given with each call, so that it may change."""

    __slots__ = ("_at_s", "_held")

    def __init__(self, rate: float, burst_s: float, now_s: float) -> None:
        self._held = rate * burst_s
        self._at_s = now_s

    def take(self, amount: float, rate: float, burst_s: float, now_s: float) -> float:
        """Takes it out, and answers for how many seconds nothing more should be taken."""
        self._fill(rate, burst_s, now_s)
        self._held -= amount
        return self._wait_s(rate)

    def wait_s(self, rate: float, burst_s: float, now_s: float) -> float:
        """How long until the debt is paid off; 0: there is none."""
        self._fill(rate, burst_s, now_s)
        return self._wait_s(rate)

    def _fill(self, rate: float, burst_s: float, now_s: float) -> None:
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._held = min(self._held + elapsed_s * rate, rate * burst_s)

    def _wait_s(self, rate: float) -> float:
        if self._held >= 0:
            return 0.0
        return min(-self._held / rate, SECONDS_MAX) if rate > 0 else SECONDS_MAX
