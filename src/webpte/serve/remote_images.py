"""Images that a request names by an address of another server: downloaded from public hosts only.

A client could otherwise use the server to reach hosts that only the server can reach. A host is checked after its name
is resolved, and the connection is made to the address that was checked, so that a name cannot be resolved anew.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Callable
from urllib.parse import SplitResult, urljoin, urlsplit

from ..errors import InputError
from ..version import __version__

MAX_REDIRECTS = 3
CONNECTION_SECONDS = 10.0  # without any data
REDIRECTS = (301, 302, 303, 307, 308)
HEADERS = {"User-Agent": f"webpte/{__version__}", "Accept": "image/*", "Accept-Encoding": "identity"}
NAT64 = ipaddress.ip_network("64:ff9b::/96")
PLATFORM_ADDRESSES = ("168.63.129.16",)  # of a cloud's own services, outside the private ranges: Azure
Allowed = Callable[[str], bool]


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet. IPv6 addresses that contain one of IPv4 are not."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and (
        parsed.ipv4_mapped is not None or parsed.sixtofour is not None or parsed.teredo is not None or parsed in NAT64
    ):
        return False
    return parsed.is_global and not parsed.is_multicast and str(parsed) not in PLATFORM_ADDRESSES


def fetch(address: str, max_bytes: int, argument: str, allowed: Allowed = is_public) -> bytes:
    """Return the bytes at an http or https address. `argument` is its name in errors."""
    try:
        for _ in range(MAX_REDIRECTS + 1):
            connection = _connection(address, argument, allowed)
            try:
                response = connection.getresponse()
                if response.status not in REDIRECTS:
                    return _body(response, max_bytes, argument)
                address = urljoin(address, response.getheader("Location") or "")
            finally:
                connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:  # the last of an invalid port
        raise _failed(argument, f"{type(error).__name__}: {error}") from error
    raise _failed(argument, f"more than {MAX_REDIRECTS} redirects")


def _connection(address: str, argument: str, allowed: Allowed) -> http.client.HTTPConnection:
    """Return a connection to a host that is allowed, with the request sent."""
    url = urlsplit(address)
    if url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
        raise InputError(
            argument=argument, expected="an http or https address without a user", got=repr(address)[:60],
            code="image_address",
        )  # fmt: skip
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)}
    if not addresses or not all(map(allowed, addresses)):
        raise InputError(
            argument=argument, expected="an address of a public host", got=url.hostname[:60], code="private_address"
        )
    connection = _CheckedConnection(url.hostname, port, sorted(addresses), secure)
    connection.request("GET", _target(url), headers=HEADERS)
    return connection


def _target(url: SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


class _CheckedConnection(http.client.HTTPConnection):
    """A connection to one of the addresses that a name was resolved to."""

    def __init__(self, host: str, port: int, addresses: list[str], secure: bool) -> None:
        self.default_port = 443 if secure else 80
        super().__init__(host, port, timeout=CONNECTION_SECONDS)
        self._addresses = addresses
        self._secure = secure

    def connect(self) -> None:
        self.sock = socket.create_connection((self._addresses[0], self.port), CONNECTION_SECONDS)
        if self._secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def _body(response: http.client.HTTPResponse, max_bytes: int, argument: str) -> bytes:
    if response.status != 200:
        raise _failed(argument, f"status {response.status}")
    data = response.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(
            argument=argument, expected=f"an image of at most {max_bytes} bytes (max_image_bytes)", got="more",
            code="image_bytes",
        )  # fmt: skip
    return data


def _failed(argument: str, reason: str) -> InputError:
    return InputError(f"{argument}: the image cannot be downloaded: {reason}", code="image_download")
