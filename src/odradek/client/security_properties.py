"""The properties of TLS and SASL: imported only for a client that uses them."""

from collections.abc import Mapping

from odradek.client.properties import InvalidProperty, Reader
from odradek.client.sasl import MECHANISMS
from odradek.client.settings import SaslSettings
from odradek.security.ciphers import BadCiphers, openssl_ciphers
from odradek.security.jaas import JaasError, parse_jaas
from odradek.security.stores import BadStore, Store, store_kind
from odradek.security.tls_settings import VERSIONS, TlsSettings


def tls_settings(reader: Reader) -> TlsSettings:
    algorithm = reader.choice("ssl.endpoint.identification.algorithm", "https", ("https", ""))
    oldest, newest = _versions(reader)
    return TlsSettings(
        trust=_store(reader, "ssl.truststore", "certificates"),
        identity=_store(reader, "ssl.keystore", "certificate.chain"),
        check_hostname=algorithm == "https",
        oldest_version=oldest,
        newest_version=newest,
        ciphers=_ciphers(reader, oldest, newest),
    )


def _versions(reader: Reader) -> tuple[str, str]:
    name = "ssl.enabled.protocols"
    given = {part.strip() for part in (reader.text(name) or ",".join(VERSIONS)).split(",")}
    known = sorted(given & set(VERSIONS))
    if not known:
        raise InvalidProperty(name, "must contain TLSv1.2 or TLSv1.3: older versions are not safe")
    return known[0], known[-1]


def _ciphers(reader: Reader, oldest: str, newest: str) -> tuple[str, ...]:
    name = "ssl.cipher.suites"
    given = tuple(part.strip() for part in (reader.text(name) or "").split(",") if part.strip())
    try:
        if given:
            openssl_ciphers(given, oldest, newest)
    except BadCiphers as error:
        raise InvalidProperty(name, str(error)) from None
    return given


def _store(reader: Reader, prefix: str, certificates_name: str) -> Store | None:
    location = reader.text(f"{prefix}.location")
    certificates = reader.text(f"{prefix}.{certificates_name}")
    if location is None and certificates is None:
        return None
    try:
        kind = store_kind(reader.text(f"{prefix}.type"), location, certificates is not None)
    except BadStore as error:
        raise InvalidProperty(f"{prefix}.type", str(error)) from None
    return Store(
        kind=kind,
        location=location,
        password=reader.given.get(f"{prefix}.password"),
        certificates=certificates,
        key=reader.text(f"{prefix}.key"),
        key_password=reader.given.get("ssl.key.password"),
    )


def sasl_settings(reader: Reader) -> SaslSettings:
    mechanism = reader.text("sasl.mechanism") or "GSSAPI"
    if mechanism not in MECHANISMS:
        raise InvalidProperty("sasl.mechanism", f"{mechanism} is not one of {', '.join(MECHANISMS)}")
    jaas = _jaas_options(reader)
    if mechanism != "OAUTHBEARER":
        for option in ("username", "password"):
            if option not in jaas:
                raise InvalidProperty("sasl.jaas.config", f"it has no {option}")
        return SaslSettings(mechanism, jaas["username"], jaas["password"])
    token_url = reader.text("sasl.oauthbearer.token.endpoint.url")
    subject = jaas.get("unsecuredLoginStringClaim_sub")
    if token_url is None and subject is None:
        raise InvalidProperty("sasl.oauthbearer.token.endpoint.url", "must be given for OAUTHBEARER")
    prefix = "extension_"
    return SaslSettings(
        mechanism,
        username=jaas.get("clientId", ""),
        password=jaas.get("clientSecret", ""),
        token_url=token_url,
        scope=jaas.get("scope"),
        extensions=tuple(
            (name.removeprefix(prefix), value) for name, value in jaas.items() if name.startswith(prefix)
        ),
        unsecured_subject=subject,
    )


def _jaas_options(reader: Reader) -> Mapping[str, str]:
    name = "sasl.jaas.config"
    text = reader.text(name)
    if text is None:
        raise InvalidProperty(name, "must be given if security.protocol is a SASL one")
    try:
        return parse_jaas(text).options
    except JaasError as error:
        raise InvalidProperty(
            name, f"expected 'org.apache.kafka…LoginModule required name=\"value\" …;', but {error}"
        ) from None
