"""What a KV cache holds, and for whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .errors import StaleGenerationError


class Occupancy:
    """The tokens whose keys and values are in a cache, and the one generation that may add to them.

    Tokens are noted after the device has computed them and forgotten before their rows are overwritten, so that what is
    noted is true whatever interrupts a call. Whoever takes the cache makes everyone before it stale. Only the model
    calls this, with its lock held.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens = list(tokens)
        self._ahead = 0  # of them computed before anyone has seen them
        self._holder: object = None

    @property
    def tokens(self) -> Sequence[int]:
        """Those that were seen."""
        return self._tokens[: len(self._tokens) - self._ahead]

    @property
    def computed(self) -> Sequence[int]:
        """Those, and what was computed ahead."""
        return tuple(self._tokens)

    @property
    def position(self) -> int:
        return len(self._tokens) - self._ahead

    def take(self, holder: object = None) -> None:
        """From here on only `holder` may go on; nobody, if it is None."""
        self._holder = holder
        self.truncate(self.position)

    def check(self, holder: object) -> None:
        if self._holder is not holder:
            raise StaleGenerationError(
                "something else has used the model's cache since this answer's last token: another generation, or "
                "reset, rewind, logits or restore. Finish one answer before the next, or give each a fork() of its own."
            )

    def truncate(self, position: int) -> None:
        """Forget the tokens from a position on."""
        self._ahead = 0
        del self._tokens[position:]

    def add(self, tokens: Iterable[int]) -> None:
        self._tokens.extend(tokens)

    def keep_back(self, holder: object, count: int) -> None:
        """The last `count` tokens are computed, and not yet seen by the reader of `holder`."""
        if self._holder is holder:
            self._ahead = count

    def common_prefix(self, wanted: Sequence[int]) -> int:
        """How many tokens the cache and a sequence begin with alike, seen or not."""
        common = 0
        for known, token in zip(self._tokens, wanted, strict=False):
            if known != token:
                break
            common += 1
        return common
