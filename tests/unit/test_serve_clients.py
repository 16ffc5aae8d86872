"""Clients: how they are distinguished."""

from __future__ import annotations

import pytest

from webpte.serve.clients import client_of_address


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::1", "::1", True),
        ("", "/run/webpte.sock", False),
    ],
)
def test_addresses_of_one_network_are_one_client(one, other, same):
    assert (client_of_address(one) == client_of_address(other)) == same
