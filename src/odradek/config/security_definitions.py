"""The broker keys of security: TLS, SASL, the authorizer. Each may be set for one listener alone, as
`listener.name.<listener>.<key>`.

Rows of (name, type, default, validator, importance, scope, documentation), read by the broker's table.
"""

from odradek.config.definition import ConfigType, Importance, Row, Scope, at_least, one_of

BOOLEAN, STRING, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LONG
LIST, PASSWORD = ConfigType.LIST, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED = Scope.READ_ONLY

SECURITY_DEFINITIONS: tuple[Row, ...] = (
    ("ssl.keystore.type", STRING, "PEM", one_of("PEM"), MEDIUM, FIXED,
     "Format of the broker's own key: PEM."),
    ("ssl.keystore.location", STRING, None, None, HIGH, FIXED,
     "File with the broker's private key and certificate chain."),
    ("ssl.keystore.key", PASSWORD, None, None, HIGH, FIXED, "The private key itself, instead of a file."),
    ("ssl.keystore.certificate.chain", PASSWORD, None, None, HIGH, FIXED,
     "The certificate chain itself, instead of a file."),
    ("ssl.keystore.password", PASSWORD, None, None, HIGH, FIXED, "Password of the keystore's file."),
    ("ssl.key.password", PASSWORD, None, None, HIGH, FIXED, "Password of the private key."),
    ("ssl.truststore.type", STRING, "PEM", one_of("PEM"), MEDIUM, FIXED,
     "Format of the trusted certificates: PEM."),
    ("ssl.truststore.location", STRING, None, None, HIGH, FIXED,
     "File with the certificates that are trusted."),
    ("ssl.truststore.certificates", PASSWORD, None, None, HIGH, FIXED,
     "The trusted certificates themselves, instead of a file."),
    ("ssl.truststore.password", PASSWORD, None, None, HIGH, FIXED, "Password of the truststore's file."),
    ("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM, FIXED,
     "Whether clients must show a certificate."),
    ("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), None, MEDIUM, FIXED, "The TLS versions spoken."),
    ("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, FIXED, "The TLS version preferred."),
    ("ssl.cipher.suites", LIST, (), None, MEDIUM, FIXED,
     "The ciphers allowed; none named means the defaults."),
    ("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, FIXED,
     "How this broker, as a client, checks another's host name."),
    ("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, FIXED,
     "How a certificate's distinguished name becomes a principal."),
    ("sasl.enabled.mechanisms", LIST, ("PLAIN",), None, MEDIUM, FIXED, "The SASL mechanisms offered."),
    ("sasl.mechanism.inter.broker.protocol", STRING, "PLAIN", None, MEDIUM, FIXED,
     "The SASL mechanism for connections between brokers."),
    ("sasl.mechanism.controller.protocol", STRING, "PLAIN", None, HIGH, FIXED,
     "The SASL mechanism that brokers use with the controller."),
    ("sasl.jaas.config", PASSWORD, None, None, MEDIUM, FIXED,
     "The login module and its users or credentials."),
    ("connections.max.reauth.ms", LONG, 0, at_least(0), MEDIUM, FIXED,
     "Time after which a SASL client must log in again; 0 for never."),
    ("authorizer.class.name", STRING, "", None, LOW, FIXED,
     "Kafka's StandardAuthorizer switches access control on; empty leaves it off."),
    ("super.users", STRING, "", None, LOW, FIXED,
     "Principals that may do everything, separated by semicolons."),
    ("allow.everyone.if.no.acl.found", BOOLEAN, False, None, LOW, FIXED,
     "Whether a resource without any ACL is open to all."),
)  # fmt: skip
