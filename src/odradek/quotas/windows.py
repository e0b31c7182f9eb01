"""A rate over sampled windows, as Kafka measures it, and how long a client over its limit has to wait.

What is counted goes into windows of a fixed length. The rate is the sum of the last windows (`quota.window.num`) by the
time since the first of them began. Windows that are missing, because the client was silent, count as empty ones: after
a pause a client may use at once what it has not used, for all windows but one.

A client whose rate is above its limit has to be silent until the rate is the limit again, if nothing more is counted:
with a rate of O over a time of W and a limit of T, that is (O - T) / T * W.

One more window is kept than the setting says, because the first of them is usually past in part.
"""

from collections import deque


class Window:
    __slots__ = ("began_ms", "last_ms", "sum")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.last_ms = now_ms  # when something was counted in it
        self.sum = 0.0


class Rate:
    """Per second."""

    __slots__ = ("_kept", "_window_ms", "_windows")

    def __init__(self, windows: int = 11, window_ms: int = 1000) -> None:
        self._kept = windows
        self._window_ms = window_ms
        self._windows: deque[Window] = deque(maxlen=windows + 1)  # the oldest first

    @property
    def last_ms(self) -> int:
        """The time when something was last counted; -1 if nothing is."""
        return self._windows[-1].last_ms if self._windows else -1

    def record(self, value: float, now_ms: int) -> None:
        """A negative value takes back what was counted just now."""
        windows = self._windows
        if not windows or now_ms - windows[-1].began_ms >= self._window_ms:
            windows.append(Window(now_ms))
        windows[-1].sum += value
        windows[-1].last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate, and the milliseconds that it is measured over."""
        windows, window_ms = self._windows, self._window_ms
        while windows and now_ms - windows[0].last_ms >= self._kept * window_ms:
            windows.popleft()
        elapsed_ms = now_ms - windows[0].began_ms if windows else 0
        missing = self._kept - 1 - elapsed_ms // window_ms
        elapsed_ms = max(elapsed_ms + max(missing, 0) * window_ms, 1)
        return sum(window.sum for window in windows) * 1000 / elapsed_ms, elapsed_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return for how long a client with this limit has to be silent; 0 if its rate is within the limit."""
        rate, elapsed_ms = self.measure(now_ms)
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0
