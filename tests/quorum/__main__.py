"""Replay one seed of the quorum with everything that happened, or run many.

python -m tests.quorum 17                     the trace of seed 17
python -m tests.quorum 17 --hash              a hash of it
python -m tests.quorum --seeds 0:10000        many; stops at the first that fails
python -m tests.quorum --seeds 0:50 --verbose what happened in each of them
"""

import argparse
import hashlib
import logging
import sys
import time

from tests.quorum.run import Totals, run_seed, run_seeds

PROGRESS_EVERY = 500


def described(counts):
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def replay(seed):
    outcome = run_seed(seed, print)
    print(f"seed {seed}: {described(outcome.counts)}")
    if outcome.failure is None:
        print(f"seed {seed} passed")
        return 0
    print(f"seed {seed} failed: {outcome.failure}")
    return 1


def print_hash(seed):
    digest = hashlib.blake2b(digest_size=16)
    run_seed(seed, lambda line: digest.update(line.encode()))
    print(digest.hexdigest())
    return 0


def run_many(seeds, options):
    totals, failed, end = Totals(), 0, time.monotonic() + options.seconds
    for outcome in run_seeds(seeds):
        totals.add(outcome)
        if options.verbose:
            print(f"seed {outcome.seed}: {described(outcome.counts)}", flush=True)
        if outcome.failure is not None:
            failed += 1
            text = f"seed {outcome.seed}: {outcome.failure!r}" if options.go_on else outcome.explain()
            print(text, flush=True)
            if not options.go_on:
                break
        if totals.seeds % PROGRESS_EVERY == 0:
            print(totals, flush=True)
        if time.monotonic() > end:
            break
    print(f"{totals}; {failed} failed")
    return 1 if failed else 0


def parse_seeds(text):
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seed", nargs="?", type=int, help="replay this one, with its trace")
    parser.add_argument("--hash", action="store_true", help="print only a hash of the trace")
    parser.add_argument("--seeds", type=parse_seeds, default=range(1000), help="FIRST:END")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails")
    parser.add_argument("--verbose", action="store_true", help="say of each seed what happened in it")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # what recovery cuts is all in the day's work here
    if options.seed is None:
        return run_many(options.seeds, options)
    return print_hash(options.seed) if options.hash else replay(options.seed)


sys.exit(main())
