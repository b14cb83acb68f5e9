"""Token bucket: fills steadily up to its burst, and may be overdrawn.

Tokens are taken whether they are there or not, because what they stand for is done or promised by
then; what is taken next waits until the debt is paid off. So over any stretch of time the rate
holds, but for one burst and the last amount taken.

Pure: time comes in, a wait comes out. Kafka measures quotas over sampled windows and assumes that a
newcomer's past windows were empty, which lets it take ten seconds' worth at once: not so here.
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
        """They hold from the last call on."""
        self.rate_per_s = rate_per_s
        self.burst = burst

    def available(self, now_s: float) -> float:
        """Tokens that are there now; negative while the bucket is overdrawn."""
        if self._at_s is None:
            self._tokens, self._at_s = self.burst, now_s
        # A clock that goes back brings nothing, and takes nothing away.
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = max(self._at_s, now_s)
        self._tokens = min(self._tokens + elapsed_s * self.rate_per_s, self.burst)
        return self._tokens

    def wait_s(self, now_s: float, amount: float = 0.0) -> float:
        """Seconds until `amount` tokens will be there; 0 if they are, inf if that never happens."""
        missing = amount - self.available(now_s)
        if missing <= 0:
            return 0.0
        return missing / self.rate_per_s if self.rate_per_s > 0 else float("inf")

    def take(self, amount: float, now_s: float) -> float:
        """Takes tokens; answers for how many seconds nothing more should be taken."""
        wait_s = self.wait_s(now_s, amount)
        self._tokens -= amount
        return wait_s

    def give_back(self, amount: float) -> None:
        """Returns tokens that were taken and are not used after all."""
        self._tokens = min(self.burst, self._tokens + amount)
