"""Replay one seed with everything that happened, or run many.

python -m tests.cluster 17                     the trace of seed 17
python -m tests.cluster 17 --hash              a hash of it
python -m tests.cluster --seeds 0:1000        many; stops at the first that fails
"""

import argparse
import sys

from tests.cluster.run import run_seed, run_seeds
from tests.simulation.run import Totals
from tests.simulation.trace import Trace

PROGRESS_EVERY = 20


def replay(seed: int, only_hash: bool) -> int:
    trace = Trace(None if only_hash else print)
    outcome = run_seed(seed, trace)
    print(f"{len(trace.lines)} lines, hash {trace.hash.hexdigest()}")
    if only_hash:
        return 0
    if outcome.failure is None:
        print(f"seed {seed} passed: {outcome.worth}, {outcome.counts}")
        return 0
    print(f"seed {seed} failed: {outcome.failure}")
    return 1


def run_many(seeds: range, go_on: bool) -> int:
    totals = Totals()
    failed = 0
    for outcome in run_seeds(seeds):
        totals.add(outcome)
        if outcome.failure is not None:
            failed += 1
            print(f"seed {outcome.seed}: {outcome.failure!r}" if go_on else outcome.explain(), flush=True)
            if not go_on:
                break
        if totals.seeds % PROGRESS_EVERY == 0:
            print(totals, flush=True)
    print(f"{totals}; {failed} failed")
    return 1 if failed else 0


def parse_seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seed", nargs="?", type=int, help="replay this one, with its trace")
    parser.add_argument("--hash", action="store_true", help="print only a hash of the trace")
    parser.add_argument("--seeds", type=parse_seeds, default=range(100), help="FIRST:END")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed, options.hash)
    return run_many(options.seeds, options.go_on)


sys.exit(main())
