"""Names of certificates as Java writes them, and the rules that turn them into users."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from odradek.model import ANONYMOUS, Principal
from odradek.security.names import BadCertificate, name_to_text, subject_of
from odradek.security.principals import BadRules, NoRuleMatches, PrincipalRules

CN, ORG, OU, C = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)


def text_of(*parts):
    return name_to_text(x509.Name([x509.NameAttribute(*part) for part in parts]).public_bytes())


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(C, "DE"), (ORG, "Odradek"), (CN, "broker 1")], "CN=broker 1,O=Odradek,C=DE"),
        ([(CN, 'a,b=c+d<e>f#g;h"i\\j')], 'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
        ([(CN, "  both  ")], "CN=\\ \\ both\\ \\ "),
        ([(CN, " ")], "CN=\\ "),
        ([(CN, "Grüße")], "CN=Grüße"),
        ([(NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "ada")], "UID=ada,DC=example"),
        ([(NameOID.STATE_OR_PROVINCE_NAME, "B"), (NameOID.LOCALITY_NAME, "C"), (OU, "U")], "OU=U,L=C,ST=B"),
        ([(NameOID.STREET_ADDRESS, "S")], "STREET=S"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.SERIAL_NUMBER, "7")], "2.5.4.5=#130137"),
        ([(CN, "x", _ASN1Type.BMPString)], "CN=x"),
    ],
)
def test_a_name_is_written_as_java_writes_it(parts, text):
    assert text_of(*parts) == text


def test_attributes_of_one_part_are_joined_by_a_plus():
    part = x509.RelativeDistinguishedName([x509.NameAttribute(CN, "a"), x509.NameAttribute(OU, "b")])
    assert name_to_text(x509.Name([part]).public_bytes()) == "CN=a+OU=b"


def certificate(name):
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1)
    subject = x509.Name([x509.NameAttribute(ORG, "x" * 200), x509.NameAttribute(CN, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "authority")]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


def test_the_subject_of_a_certificate_is_found():
    assert subject_of(certificate("ada")) == f"CN=ada,O={'x' * 200}"


def test_bytes_that_are_no_certificate_are_refused():
    whole = certificate("ada")
    for data in (
        b"",
        b"\x30",
        b"\x30\x80",
        whole[:-1],
        whole + b"x",
        b"\x30\x02\x30\x00",
        b"\x30\x84\xff\xff\xff\xff",
    ):
        with pytest.raises(BadCertificate):
            subject_of(data)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=ada,O=x", "CN=ada,O=x"),
        ("", "CN=ada", "CN=ada"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=ada,OU=ServiceUsers,O=x", "ada"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", "CN=ADA,OU=Ops,O=x", "ada@ops"),
        ("RULE:^CN=(.*?)$/$1/U, DEFAULT", "CN=ada", "ADA"),
        ("RULE:^CN=(x.*)$/$1/, RULE:^.*O=(.*)$/$1/, DEFAULT", "CN=ada,O=org", "org"),
        ("RULE:^CN=(x.*)$/$1/, DEFAULT", "CN=ada", "CN=ada"),
        ("RULE:^CN=(\\w+)$/$1-$2-$12/", "CN=ada", "ada-$2-ada2"),
        (r"RULE:^CN=(.*)\/x$/a\/$1/", "CN=ada/x", "a/ada"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=ada", "$1"),
    ],
)
def test_the_first_rule_that_matches_decides(rules, name, user):
    assert PrincipalRules(rules).principal_of_name(name) == Principal("User", user)


def test_a_name_that_no_rule_matches_is_refused():
    with pytest.raises(NoRuleMatches):
        PrincipalRules("RULE:^CN=x$/x/").principal_of_name("CN=ada")


@pytest.mark.parametrize(
    "rules",
    ["RULE:", "RULE:a/b", "RULE:(/x/", "nonsense", "RULE:(?=x)/x/", r"RULE:(a)\1/x/", "DEFAULT DEFAULT"],
)
def test_rules_that_cannot_be_used_are_refused(rules):
    with pytest.raises(BadRules):
        PrincipalRules(rules)


def test_a_pattern_that_would_take_java_for_ever_costs_nothing():
    rules = PrincipalRules("RULE:^CN=(a+)+$/x/, DEFAULT")
    assert rules.principal_of_name("CN=" + "a" * 50_000 + "!").name.endswith("!")


def test_a_client_without_a_certificate_is_anonymous():
    assert PrincipalRules().principal_of_certificate(None) == ANONYMOUS
    assert PrincipalRules("RULE:^CN=(.*?),.*$/$1/").principal_of_certificate(certificate("ada")).name == "ada"
