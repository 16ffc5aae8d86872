"""Who may ask: API keys, compared in a time that tells nothing of them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from .failures import Refusal


class Keys:
    """The keys of a server. Their digests are what is kept and compared, so all are equally long."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def check(self, authorization: str | None) -> None:
        """Refuse a request whose `Authorization` brings none of the keys; without keys all may ask."""
        if not self._digests:
            return
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise Refusal(
                401,
                "there is no API key: send the header Authorization: Bearer KEY",
                code="missing_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        digest = _digest(given.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all, whichever matches
        if not any(matches):
            raise Refusal(401, "the API key is not one of this server's", headers={"WWW-Authenticate": "Bearer"})


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
