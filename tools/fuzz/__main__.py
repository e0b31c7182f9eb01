"""Throw damaged requests at a broker: the command line."""

import argparse
import sys
import tempfile

from tools.fuzz.fuzzer import fuzz_in_process
from tools.fuzz.sockets import fuzz_over_sockets


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description="Throw damaged requests at a broker."
    )
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bootstrap", help="send them to this broker, over sockets")
    options = parser.parse_args()
    if options.bootstrap:
        closed = fuzz_over_sockets(options.bootstrap, options.frames, options.seed, lambda: None)
        print(f"{options.frames:,} frames sent, {closed:,} connections closed by the broker")
        return 0
    with tempfile.TemporaryDirectory() as data_dir:
        outcome = fuzz_in_process(options.frames, options.seed, data_dir)
    print(outcome.report())
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
