"""Certificates for the ticket databases and for the load balancer, from an authority of their own.

    make_certificates.py FOLDER NAME[,ALIAS...][:UID] ...

For each NAME: FOLDER/NAME/cert.pem, key.pem, and both in bundle.pem, as HAProxy reads them. An alias is a further host
name or IP address. What is made for a UID belongs to that user. FOLDER/ca/ca.pem is what verifies them all. The
authority's key is not kept: whoever reads the folder can make no further certificate, and one that is lost is replaced
together with the others. Where ca.pem is there already, nothing is done. Requires `cryptography`, as the ticket server
does. docker-compose.yml runs this at the first start.
"""

import datetime
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3650
"""An expired certificate takes every ticket database away at once; nobody renews these by the month."""


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, signed_by: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """What both kinds of certificate have in common. Python's strict verification asks for both key identifiers."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # for clocks that are behind
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by), critical=False)
    )


class Authority:
    """A certificate authority that lasts as long as this process."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = common_name("Ticket server's own authority")
        public = self._key.public_key()
        self._certificate = (
            begin(self._name, self._name, public, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(authority=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, names: list[str]) -> tuple[bytes, bytes]:
        """The certificate and the key of a server with these host names and addresses, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            begin(common_name(names[0]), self._name, key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([general_name(each) for each in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.public_bytes(serialization.Encoding.PEM), private


def general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def write(path: Path, content: bytes, mode: int, uid: int | None) -> None:
    """Written anew, so that nobody who opened an earlier file reads this one. Readable by `uid` and by group root."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, mode)
        if uid is not None:
            os.fchown(descriptor, uid, -1)


def main(arguments: list[str]) -> None:
    if len(arguments) < 2:
        sys.exit(__doc__)
    folder = Path(arguments[0])
    authority_file = folder / "ca/ca.pem"
    if authority_file.exists():
        print(f"{authority_file} is there; nothing to do")
        return
    authority = Authority()
    for argument in arguments[1:]:
        text, _, uid_text = argument.partition(":")
        names, uid = text.split(","), int(uid_text) if uid_text else None
        certificate, key = authority.issue(names)
        place = folder / names[0]
        place.mkdir(parents=True, exist_ok=True)
        write(place / "cert.pem", certificate, 0o444, uid)
        write(place / "key.pem", key, 0o440, uid)
        write(place / "bundle.pem", certificate + key, 0o440, uid)
    authority_file.parent.mkdir(parents=True, exist_ok=True)
    write(authority_file, authority.pem, 0o444, None)  # last: it says that all the others are there
    print(f"made {authority_file} and what it verifies")


if __name__ == "__main__":
    main(sys.argv[1:])
