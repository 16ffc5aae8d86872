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
# Python's `is_global` differs between its versions. IANA's special-purpose registries, and platforms' own addresses:
_NETWORKS = {
    4: (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        "168.63.129.16/32",  # Azure's services
    ),
    6: (
        "2001::/23",  # of protocols: Teredo, ORCHID and others
        "2001:db8::/32",
        "2002::/16",  # contains an IPv4 address
        "2620:4f:8000::/48",
        "3ffe::/16",
        "3fff::/20",
    ),
}
NOT_PUBLIC = {version: [ipaddress.ip_network(text) for text in texts] for version, texts in _NETWORKS.items()}
UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is assigned to the public internet
ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # the third quarter of an IPv6 address whose last is one of IPv4
Allowed = Callable[[str], bool]


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet. IPv6 addresses that contain one of IPv4 are not."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        contains_ipv4 = int(parsed) >> 32 & 0xFFFF_FFFF in ISATAP
        if parsed not in UNICAST or contains_ipv4:
            return False
    return not any(parsed in network for network in NOT_PUBLIC[parsed.version])


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
