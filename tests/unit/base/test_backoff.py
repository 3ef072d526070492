"""The wait doubles up to its maximum, and no two brokers wait alike."""

from ottla.base.backoff import Backoff


class _Dice:
    def __init__(self, share: float) -> None:
        self._share = share

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def below(self, bound: int) -> int:
        return min(int(bound * self._share), bound - 1)


def test_the_wait_doubles_up_to_its_maximum() -> None:
    backoff, middle = Backoff(first_ms=100, max_ms=1_000), _Dice(0.5)
    waits = [backoff.delay_ms(failures, middle) for failures in (1, 2, 3, 4, 5, 500)]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


def test_the_jitter_is_a_fifth_to_either_side() -> None:
    backoff = Backoff(first_ms=100, max_ms=1_000)
    assert backoff.delay_ms(1, _Dice(0)) == 80
    assert backoff.delay_ms(1, _Dice(1)) == 120


def test_a_tiny_wait_has_no_jitter() -> None:
    assert Backoff(first_ms=1, max_ms=4).delay_ms(1, _Dice(0.9)) == 1
