"""The harness itself, from the command line to the picture, on a broker of ours and with next to no work."""

from pathlib import Path

import pytest

from bench import native
from bench.__main__ import SYSTEMS, main, parse_arguments, part_name
from bench.runner import LIMIT, Run, load_run
from bench.workloads import CLUSTER, FIGURES, GROWTH, OWN, WORKLOADS


@pytest.fixture(autouse=True)
def load_generators() -> None:
    try:
        for name in ("load", "limit", "replay"):
            native.tool(name)
    except native.Unavailable as error:
        pytest.skip(str(error))


def test_a_quick_run_measures_stores_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--only", "odradek-unsynced", "bulk-1k", "start"]
    assert main([*arguments, "--scratch", str(tmp_path), "--results", str(tmp_path / "results")]) == 0
    run = load_run(tmp_path / "results" / "own-part-quick.json")
    assert run.failures == []
    assert run.values("odradek-unsynced", "start", "start_s")[0] > 0
    assert run.values("odradek-unsynced", "bulk-1k", "produce_mb_s")[0] > 0
    assert run.values(LIMIT, "bulk-1k", "consume_mb_s")[0] > 0
    assert (tmp_path / "results" / "own-part-quick.png").stat().st_size > 1000
    assert "these numbers mean nothing" in (tmp_path / "results" / "own-part-quick.md").read_text()
    assert "1 KB: produce" in capsys.readouterr().out
    assert main(["show", "own-part-quick", "--results", str(tmp_path / "results")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"], "servers leave nothing behind"


def test_a_load_generator_that_fails_says_why() -> None:
    with pytest.raises(native.LoadFailed, match="missing argument count"):
        native.run("load", "produce", {"bootstrap": "127.0.0.1:1", "topic": "t"})


def test_names_are_distinct_and_known(capsys: pytest.CaptureFixture[str]) -> None:
    names = [kind.name for kind in SYSTEMS] + [each.name for each in {*WORKLOADS, *OWN, *CLUSTER, *GROWTH}]
    assert len(names) == len(set(names))
    assert all(
        figure.cpu is not None for figure in FIGURES.values() if figure.more_is_better and not figure.paired
    )
    with pytest.raises(SystemExit):
        parse_arguments(["--only", "kafkaesque"])
    assert "neither a system nor a workload: kafkaesque" in capsys.readouterr().err


def test_only_a_whole_run_replaces_the_stored_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, end in (
        (["peers"], ""),
        (["peers", "--rounds", "2"], ""),
        (["peers", "--only", "bulk-1k"], "-part"),
        (["kafka", "--quick"], "-quick"),
    ):
        assert part_name(parse_arguments(arguments)) == end
    Run("peers", 1, 1.0, part="-part").store(tmp_path)
    with pytest.raises(SystemExit):
        parse_arguments(["show", "peers", "--results", str(tmp_path)])
    assert "there is no stored run peers, but peers-part" in capsys.readouterr().err
