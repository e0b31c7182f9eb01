"""A short tour that ends by itself: a broker, a topic, messages in, messages out, and Spark on both sides.

Everything shown is the real command, run as a user would type it, against a broker that lives in a
temporary directory and is gone afterwards.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ORDERS = """\
alice:{"item": "spool of thread", "price": 4}
bob:{"item": "star-shaped bobbin", "price": 11}
alice:{"item": "crossbar", "price": 2}
"""

SPARK_DEMO = Path(__file__).with_name("spark_demo.py")

STEPS = (
    ("a topic with three partitions", "odradek topic create orders --partitions 3", ""),
    ("three messages; the key decides on the partition", "odradek produce orders --key-separator :", ORDERS),
    ("what the topic looks like", "odradek topic describe orders", ""),
    ("all of it, to the end", "odradek consume orders --from-beginning --exit-at-end", ""),
    (
        "the same with keys and offsets",
        r"odradek consume orders --from-beginning -e --format '%p/%o  %k  %v\n'",
        "",
    ),
    ("one of them for a script", "odradek consume orders --from-beginning --max-messages 1 --json", ""),
)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="odradek-demo-") as directory:
        command = [sys.executable, "-m", "odradek", "up", "--port", "0", "--json", "--log-level", "warning"]
        command += ["--data-dir", str(Path(directory) / "data")]
        say("a broker of its own for this tour", "odradek up --port 0")
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            return tour(broker)
        finally:
            broker.terminate()
            broker.communicate(timeout=30)


def tour(broker: "subprocess.Popen[str]") -> int:
    assert broker.stdout is not None
    line = broker.stdout.readline()
    if not line:
        return 1  # and the broker has said why
    bootstrap = json.loads(line)["bootstrap"]
    print(f"listening on {bootstrap}")
    environ = {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": bootstrap}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    for comment, command, stdin in STEPS:
        say(comment, command)
        print(end=stdin, flush=True)
        subprocess.run(command, shell=True, input=stdin, text=True, env=environ, check=True, timeout=60)
    subprocess.run([sys.executable, str(SPARK_DEMO), bootstrap, "orders", "3"], check=True, timeout=300)
    print("\nThat was all. Run a broker to keep with: make up")
    return 0


def say(comment: str, command: str) -> None:
    print(f"\n# {comment}\n$ {command}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
