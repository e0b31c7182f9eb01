"""Logging in to Apache Kafka: every SASL mechanism that the client speaks, and what a wrong password gets."""

import pytest

from tools.peer.kafka import KafkaPeer

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required "
SCRAM = f"{MODULES}.scram.ScramLoginModule required "
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
LISTENER = "listener.name.plaintext"

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": PLAIN
    + 'username="admin" password="pw" user_admin="pw" user_ada="secret";',
    f"{LISTENER}.scram-sha-256.sasl.jaas.config": SCRAM + ";",
    f"{LISTENER}.scram-sha-512.sasl.jaas.config": SCRAM + ";",
    f"{LISTENER}.oauthbearer.sasl.jaas.config": OAUTH + 'unsecuredLoginStringClaim_sub="admin";',
}

LOGINS = {
    "PLAIN": PLAIN + 'username="ada" password="secret";',
    "SCRAM-SHA-256": SCRAM + 'username="ada" password="secret";',
    "SCRAM-SHA-512": SCRAM + 'username="ada" password="secret";',
    "OAUTHBEARER": OAUTH + 'unsecuredLoginStringClaim_sub="ada";',
}


@pytest.fixture(scope="module")
def guarded(session_settings):
    with KafkaPeer(**SETTINGS) as peer:
        from confluent_kafka.admin import (
            AdminClient,
            NewTopic,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "admin", "sasl.password": "pw"}
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, **login})
        admin.create_topics([NewTopic("guarded", 1, 1)])["guarded"].result(30)
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for mechanism in mechanisms:
            change = UserScramCredentialUpsertion("ada", ScramCredentialInfo(mechanism, 4096), b"secret")
            admin.alter_user_scram_credentials([change])["ada"].result(30)
        yield peer


def options(peer: KafkaPeer, mechanism: str, jaas: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": peer.bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": jaas,
    }


@pytest.mark.parametrize("mechanism", LOGINS)
def test_write_and_read_after_a_login(spark, guarded, mechanism):
    given = options(guarded, mechanism, LOGINS[mechanism])
    frame = spark.createDataFrame([(mechanism,)], "value string")
    frame.write.format("odradek").options(**given).option("topic", "guarded").mode("append").save()
    rows = spark.read.format("odradek").options(**given).option("subscribe", "guarded").load().collect()
    assert mechanism.encode() in [bytes(row.value) for row in rows]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_refused_and_not_shown(spark, guarded, mechanism):
    given = options(guarded, mechanism, LOGINS[mechanism].replace("secret", "hunter2"))
    with pytest.raises(Exception) as error:
        spark.read.format("odradek").options(**given).option("subscribe", "guarded").load().count()
    assert "uthentication failed" in str(error.value)
    assert "hunter2" not in str(error.value)
