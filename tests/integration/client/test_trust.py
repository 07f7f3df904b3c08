"""Whom the client trusts, and how it introduces itself."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scripted_server import stand_in, whole

from discoverybot_client import Client, GatewayUnreachableError, __version__

HEALTHY = whole({"status": "ok", "checks": {}})


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of this machine that no public authority has signed, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    begin = datetime.now(UTC) - timedelta(days=1)
    host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=2))
    signed = builder.add_extension(host, critical=False).sign(key, hashes.SHA256())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "gateway.pem").write_bytes(text + signed.public_bytes(serialization.Encoding.PEM))
    return tmp_path / "gateway.pem"


def test_a_private_certificate_is_trusted_only_if_it_is_named(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with stand_in(HEALTHY, tls=tls) as server:
        for verify in (certificate, str(certificate), ssl.create_default_context(cafile=certificate), False):
            with Client(server.url, verify=verify) as client:
                assert client.health().status == "ok"
        with Client(server.url, retries=0) as client, pytest.raises(GatewayUnreachableError, match="CERTIFICATE"):
            client.health()
    with pytest.raises(ValueError, match=r"verify: there is no .*missing\.pem"):
        Client("https://127.0.0.1:9", verify=certificate.with_name("missing.pem"))


def test_the_client_says_what_it_is_and_sends_what_a_proxy_wants() -> None:
    with stand_in(HEALTHY) as server, Client(server.url, headers={"X-Team": "crawls"}) as client:
        client.health()
    assert server.asked[0].headers["user-agent"].startswith(f"discoverybot-client/{__version__} python/3.")
    assert server.asked[0].headers["x-team"] == "crawls"
