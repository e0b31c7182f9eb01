"""The command by which seeds are run: one with everything that happened, or many."""

import argparse

from tests.simulation.run import Totals
from tests.simulation.seeds import Run, run_all
from tests.simulation.trace import Trace

PROGRESS_EVERY = 20
COLLECT_EVERY = 5  # seeds


def replay(run: Run, seed: int, only_hash: bool) -> int:
    trace = Trace(None if only_hash else print)
    outcome = run(seed, trace)
    print(f"{len(trace.lines)} lines, hash {trace.hash.hexdigest()}")
    if only_hash:
        return 0
    if outcome.failure is None:
        print(f"seed {seed} passed: {outcome.worth}, {outcome.counts}")
        return 0
    print(f"seed {seed} failed: {outcome.failure}")
    return 1


def run_many(run: Run, seeds: range, go_on: bool) -> int:
    totals = Totals()
    failed = 0
    for outcome in run_all(seeds, run, COLLECT_EVERY):
        totals.add(outcome)
        if outcome.failure is not None:
            failed += 1
            print(f"seed {outcome.seed}: {outcome.failure!r}" if go_on else outcome.explain(run), flush=True)
            if not go_on:
                break
        if totals.seeds % PROGRESS_EVERY == 0:
            print(totals, flush=True)
    print(f"{totals}; {failed} failed")
    return 1 if failed else 0


def parse_seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def main(run: Run, description: str | None, seeds: range = range(100)) -> int:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seed", nargs="?", type=int, help="replay this one, with its trace")
    parser.add_argument("--hash", action="store_true", help="print only a hash of the trace")
    parser.add_argument("--seeds", type=parse_seeds, default=seeds, help="FIRST:END")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(run, options.seed, options.hash)
    return run_many(run, options.seeds, options.go_on)
