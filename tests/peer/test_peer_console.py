"""The console on Apache Kafka: the same pages and actions as on Odradek."""

import time
import uuid

from starlette.testclient import TestClient

from odradek.admin.access import Access
from odradek.console.app import build_app
from odradek.console.settings import ConsoleSettings
from tests.peer.conftest import KafkaPeer

BASE = "http://localhost:8090"
API = "/api/clusters/kafka"


def test_every_page_and_action_works_on_apache_kafka(kafka: KafkaPeer) -> None:
    app = build_app(ConsoleSettings({"kafka": Access(kafka.bootstrap, {})}))
    with TestClient(app, base_url=BASE) as client:
        token = client.get("/api/session").json()["token"]
        topic = f"console-{uuid.uuid4().hex[:8]}"

        def send(method: str, path: str, body: object) -> dict[str, object]:
            response = client.request(
                method, f"{API}/{path}", json=body, headers={"X-CSRF-Token": token, "Origin": BASE}
            )
            assert response.status_code == 200, response.text
            found: dict[str, object] = response.json()
            return found

        limit_s = time.monotonic() + 60
        while not (overview := client.get(API).json())["is_known"]:
            assert (overview["problem"], time.monotonic() < limit_s) == (None, True)
            time.sleep(0.05)
        assert overview["quorum"]["leader"] == overview["controller"]
        send("POST", "topics", {"topic": topic, "partitions": 2, "replication_factor": 1})
        send(
            "POST",
            f"topics/{topic}/messages",
            {"key": "a", "value": "hello", "headers": [["from", "test"]], "partition": 0},
        )
        send("PATCH", f"topics/{topic}", {"set": {"retention.ms": "1234567"}, "partitions": 3})
        send("POST", f"topics/{topic}/messages/0/0/again", {})
        settings = client.get(f"{API}/topics/{topic}/settings").json()["settings"]
        assert next(one["source"] for one in settings if one["key"] == "retention.ms") == "topic"
        search = send("POST", f"topics/{topic}/searches", {"filters": ["key=a"]})["id"]
        limit_s = time.monotonic() + 60
        while (found := client.get(f"{API}/topics/{topic}/searches/{search}").json())["is_running"]:
            assert time.monotonic() < limit_s
            time.sleep(0.1)
        assert (found["count"], found["error"]) == (2, None)
        for path in (
            "",
            "/topics",
            f"/topics/{topic}",
            f"/topics/{topic}/messages",
            f"/topics/{topic}/messages/0/0",
            f"/picture?topic={topic}",
            "/picture?whole=true",
            "/groups",
            "/transactions?hanging=true",
            "/pipelines",
            "/users",
            "/acls",
            "/quotas",
        ):
            page = client.get(f"/c/kafka{path}")
            assert page.status_code == 200, (path, page.text)
        drawn = client.get(f"{API}/picture?topic={topic}").json()["scene"]["partitions"]
        assert sum(one["high_watermark"] for one in drawn) == sum(one["log_end"] for one in drawn) > 0
        send("DELETE", f"topics/{topic}", {"confirm": topic})
