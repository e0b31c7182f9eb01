"""The files of deploy/: what they name exists, and the tools that read them accept them, where these are installed."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek.cli.up_options import argument_parser
from odradek.config.broker import BrokerConfig, load_broker_config
from odradek.services.upkeep.monitoring import HELP
from odradek.storage.disk.files import DiskFiles
from tests.support import running_broker

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKER = DEPLOY / "docker"
METRIC = re.compile(r"\bodradek_[a-z_]+")
HISTOGRAMS = {f"odradek_{name}" for name in HELP if name.endswith("_seconds")}
METRICS = {f"odradek_{name}" for name in HELP} - HISTOGRAMS | {f"{name}_bucket" for name in HISTOGRAMS}


def test_alerts_use_metrics_that_exist_and_say_what_to_do() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) > 15
    for rule in group["rules"]:
        used = set(METRIC.findall(rule["expr"]))
        assert used or rule["alert"] == "OdradekDown", rule
        assert used <= METRICS, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+[sm]", rule["for"])
        assert all(rule["annotations"][name] for name in ("summary", "description"))


def test_what_docs_call_worth_an_alert_has_one() -> None:
    rules = (DEPLOY / "prometheus" / "alerts.yaml").read_text()
    for name in ("ready", "offline_partitions", "under_min_isr_partitions", "disk_full", "damaged_logs"):
        assert f"odradek_{name} " in rules or f"odradek_{name})" in rules


def test_the_dashboard_uses_metrics_that_exist_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "odradek.json").read_text())
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 15
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        for target in panel["targets"]:
            used = set(METRIC.findall(target["expr"]))
            assert used and used <= METRICS, panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")")


def test_a_broker_tells_all_metrics_that_are_used(tmp_path: Path) -> None:
    """The names are those on the page itself, with the labels that alerts and panels ask for."""
    from tests.broker.test_monitoring import read

    with running_broker(tmp_path, metrics_listener="localhost:0") as broker:
        page = read(broker, "/metrics")[1]
    told = set(re.findall(r"# TYPE (\S+)", page))
    used = set(METRIC.findall((DEPLOY / "prometheus" / "alerts.yaml").read_text()))
    used |= set(METRIC.findall((DEPLOY / "grafana" / "odradek.json").read_text()))
    assert {name.removesuffix("_bucket") for name in used} <= told


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments",
    [("rules", "alerts.yaml"), ("config", "--syntax-only", "prometheus.yaml")],
    ids=lambda one: one[-1],
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    command = ["promtool", "check", *arguments[:-1], str(DEPLOY / "prometheus" / arguments[-1])]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


# --- systemd ---


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / "odradek.service")
    return parser


def test_the_unit_starts_a_command_that_exists_with_settings_that_do() -> None:
    service = unit()["Service"]
    program, command, *options = service["ExecStart"].split()
    assert program.endswith("/odradek") and service["Type"] == "notify"
    given = argument_parser(command).parse_args(options)
    assert given.config.parent == Path("/etc/odradek")
    config = load_broker_config(DEPLOY / "systemd" / "server.properties", {}, {})
    assert config.warnings == [] or config.warnings == ()
    assert str(config.log_dirs[0]) == f"/var/lib/{service['StateDirectory']}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "odradek.service").read_text()
    copy = tmp_path / "odradek.service"
    copy.write_text(text.replace("/opt/odradek/bin/odradek", sys.executable))  # which has to exist
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in result.stderr.splitlines() if "odradek" in line]
    assert (result.returncode, complaints) == (0, []), result.stderr


# --- containers: not built here, but read ---


def compose(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text())
    return loaded


def config_of(service: dict[str, Any]) -> BrokerConfig:
    variables = {name: value for name, value in service["environment"].items() if name.startswith("ODRADEK_")}
    return load_broker_config(DOCKER / "server.properties", {}, variables)


@pytest.mark.parametrize("name", ["compose.yaml", "compose.three.yaml"])
def test_compose_files_have_settings_that_exist(name: str) -> None:
    services = compose(name)["services"]
    for host, service in services.items():
        assert (DOCKER / service["build"]["context"]).resolve() == DEPLOY.parent
        assert (DEPLOY.parent / service["build"]["dockerfile"]).is_file()
        config = config_of(service)
        assert not config.warnings
        advertised = {one.name: one for one in config.advertised_listeners(config.broker_listeners, host)}
        assert (advertised["PLAINTEXT"].host, advertised["HOST"].host) == (host, "localhost")
        published = [port.split(":")[1:] for port in service["ports"]]
        assert [str(advertised["HOST"].port)] * 2 in published
        (volume,) = (one.split(":")[0] for one in service["volumes"])
        assert volume in compose(name)["volumes"]


def test_compose_files_are_projects_of_their_own() -> None:
    """Without names, both would be the project "docker", after their directory, and take each other for orphans."""
    names = {compose(name)["name"] for name in ("compose.yaml", "compose.three.yaml")}
    assert names == {"odradek", "odradek-three"}


def test_three_nodes_agree_on_their_voters() -> None:
    services = compose("compose.three.yaml")["services"]
    configs = {host: config_of(service) for host, service in services.items()}
    assert sorted(config.node_id for config in configs.values()) == [1, 2, 3]
    voters = {service["environment"]["VOTERS"] for service in services.values()}
    (listed,) = voters
    assert [entry.split("@")[1].rsplit(":", 1)[0] for entry in listed.split(",")] == [
        f"{host}:9093" for host in configs
    ]


def test_each_node_of_three_can_be_formatted_by_the_script(tmp_path: Path) -> None:
    for service in compose("compose.three.yaml")["services"].values():
        node = str(service["environment"]["ODRADEK_NODE_ID"])
        for _ in range(2):  # the second time, it is formatted already
            result = start_script(tmp_path, tmp_path / node, service["environment"], "--set", "bad.setting")
            assert result.returncode == 2, result.stderr  # of the broker, which was to be started with that
            assert "is not of the form KEY=VALUE" in result.stderr
        properties = (tmp_path / node / "meta.properties").read_text()
        assert f"node.id={node}\n" in properties and "cluster.id=4L6g3nShT-eMCtK--X86sw\n" in properties
        assert DiskFiles().exists(str(tmp_path / node / "__cluster_metadata-0"))


def start_script(
    tmp_path: Path, data_dir: Path, environment: dict[str, str], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run the script with `odradek` in the path, as in the image."""
    command = tmp_path / "bin" / "odradek"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m odradek "$@"\n')
    command.chmod(0o755)
    variables = {
        **{name: str(value) for name, value in environment.items()},
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "CONFIG": str(DOCKER / "server.properties"),
        "ODRADEK_LOG_DIRS": str(data_dir),
        **({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
    }
    return subprocess.run(
        ["sh", str(DOCKER / "start.sh"), *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(
    shutil.which("hadolint", path=str(Path(sys.executable).parent)) is None, reason="no hadolint"
)
def test_hadolint_accepts_the_dockerfile() -> None:
    tool = Path(sys.executable).parent / "hadolint"
    result = subprocess.run([tool, DOCKER / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_the_dockerfile_copies_what_exists() -> None:
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    names = [name for line in copied for name in line if not name.startswith("--")]
    assert len(names) >= 5 and all((DEPLOY.parent / name).exists() for name in names)
