"""The broker keys of security: TLS, SASL, the authorizer. Each may be set for one listener alone, as
`listener.name.<listener>.<key>`.

Rows of (name, type, default, validator, importance, scope, documentation), read by the broker's table.
"""

from odradek.config.definition import ConfigType, Importance, Row, Scope, at_least, between, one_of

BOOLEAN, STRING, LONG, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LONG, ConfigType.INT
LIST, PASSWORD = ConfigType.LIST, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
FIXED, BROKER = Scope.READ_ONLY, Scope.PER_BROKER

SECURITY_DEFINITIONS: tuple[Row, ...] = (
    ("ssl.keystore.type", STRING, None, None, MEDIUM, BROKER,
     "Format of the broker's own key: PEM or PKCS12. Without it the file's name and contents decide."),
    ("ssl.keystore.location", STRING, None, None, HIGH, BROKER,
     "File with the broker's private key and certificate chain."),
    ("ssl.keystore.key", PASSWORD, None, None, HIGH, FIXED, "The private key itself, instead of a file."),
    ("ssl.keystore.certificate.chain", PASSWORD, None, None, HIGH, FIXED,
     "The certificate chain itself, instead of a file."),
    ("ssl.keystore.password", PASSWORD, None, None, HIGH, FIXED, "Password of the keystore's file."),
    ("ssl.key.password", PASSWORD, None, None, HIGH, FIXED, "Password of the private key."),
    ("ssl.truststore.type", STRING, None, None, MEDIUM, BROKER,
     "Format of the trusted certificates: PEM or PKCS12. Without it the file's name and contents decide."),
    ("ssl.truststore.location", STRING, None, None, HIGH, BROKER,
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
    ("sasl.server.max.receive.size", INT, 65536, between(1024, 1 << 20), MEDIUM, FIXED,
     "The largest frame, in bytes, of a client that has not authenticated. Kafka's default is 524288."),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM, FIXED,
     "Where the keys that sign bearer tokens are: file:///path, or an allowed https:// address."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, at_least(1000), LOW, FIXED,
     "How often these keys are read again."),
    ("org.apache.kafka.sasl.oauthbearer.allowed.urls", LIST, (), None, MEDIUM, FIXED,
     "The https:// addresses that keys may be read from. In Kafka, a property of the JVM."),
    ("sasl.oauthbearer.expected.issuer", STRING, None, None, MEDIUM, FIXED,
     "Who must have issued a bearer token."),
    ("sasl.oauthbearer.expected.audience", LIST, (), None, MEDIUM, FIXED,
     "Whom a bearer token must be for: one of these."),
    ("sasl.oauthbearer.clock.skew.seconds", INT, 30, between(0, 300), LOW, FIXED,
     "By how much the clocks of the issuer and of this node may differ."),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, FIXED,
     "The claim of a bearer token that names the user."),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, FIXED,
     "The claim of a bearer token that names its scope, which nothing here looks at."),
    ("authorizer.class.name", STRING, "", None, LOW, FIXED,
     "Kafka's StandardAuthorizer switches access control on; empty leaves it off."),
    ("super.users", STRING, "", None, LOW, FIXED,
     "Principals that may do everything, separated by semicolons."),
    ("allow.everyone.if.no.acl.found", BOOLEAN, False, None, LOW, FIXED,
     "Whether a resource without any ACL is open to all."),
)  # fmt: skip
