"""Finds out who a client is: TLS and SASL without sockets.

    exchange        one SASL exchange from the server's side: the seam between a mechanism and a session
    plain           PLAIN, both sides
    scram           SCRAM's formulas and messages; scram_server, scram_client: its two sides
    credentials     what is kept of a SCRAM password
    decoys          the credentials that unknown users seem to have
    bearer          OAUTHBEARER, both sides; tokens: which ones are valid; key_sets: with which keys, and from where
    jaas            the syntax of `sasl.jaas.config`
    login           the SASL states of one connection, from the handshake to re-authentication
    ciphers         `ssl.cipher.suites`
    names           a certificate's distinguished name, as Java writes it; principals: from that name to a user
    stores          keys and certificates in PEM and PKCS12
    tls_settings    what TLS should be like; contexts: what OpenSSL is told of it
    authority       makes certificates, for tests and small clusters

Mechanisms and sessions are pure: time, chance and credentials are arguments. Only `stores`, `contexts` and `key_sets`
read files, and `key_sets` alone uses the network.
"""
