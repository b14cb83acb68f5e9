"""Token bucket: fills steadily up to its burst, and may be overdrawn.

Tokens are taken even if they are missing, because the work is done or promised by then; the next
caller waits until the debt is paid off. So the rate holds over any period, except for one burst and
the last amount taken.

Pure: time comes in, a wait comes out. Kafka measures quotas over sampled windows and assumes that a
new client's past windows were empty, which lets it take ten seconds' worth at once: not so here.
"""


class TokenBucket:
    """Full when first used. Rate and burst may change between calls."""

    __slots__ = ("_at_s", "_tokens", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._tokens = 0.0
        self._at_s: float | None = None

    def adjust(self, rate_per_s: float, burst: float) -> None:
        """Sets rate and burst; they also apply to the time since the last call."""
        self.rate_per_s = rate_per_s
        self.burst = burst

    def available(self, now_s: float) -> float:
        """Tokens available now; negative while the bucket is overdrawn."""
        if self._at_s is None:
            self._tokens, self._at_s = self.burst, now_s
        # A clock that goes back adds no tokens, and removes none.
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = max(self._at_s, now_s)
        self._tokens = min(self._tokens + elapsed_s * self.rate_per_s, self.burst)
        return self._tokens

    def wait_s(self, now_s: float, amount: float = 0.0) -> float:
        """Seconds until `amount` tokens are available; inf if never."""
        missing = amount - self.available(now_s)
        if missing <= 0:
            return 0.0
        return missing / self.rate_per_s if self.rate_per_s > 0 else float("inf")

    def take(self, amount: float, now_s: float) -> float:
        """Takes tokens; returns the seconds for which no more should be taken."""
        wait_s = self.wait_s(now_s, amount)
        self._tokens -= amount
        return wait_s

    def give_back(self, amount: float) -> None:
        """Returns tokens that were taken but not used."""
        self._tokens = min(self.burst, self._tokens + amount)
