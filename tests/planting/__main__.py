"""Plant bugs in the product, and see who finds them.

python -m tests.planting                        each in a process of its own, as a table
python -m tests.planting cluster quorum         those of some simulations
python -m tests.planting cluster/min-isr        one, in this process
python -m tests.planting cluster/min-isr --every     run all of its seeds, and count those that catch it
"""

import argparse
import subprocess
import sys

from tests.planting.hunting import hunt
from tests.planting.suites import BUGS


def hunt_one(name: str, every: bool) -> int:
    """Returns 0 if the bug was found."""
    seeds, found = 0, []
    for result in hunt(*BUGS[name]):
        seeds += 1
        if result is not None:
            found.append(result)
            if not every:
                break
    if not found:
        print(f"{name}: not caught in {seeds} seeds")
        return 1
    print(f"{name}: {found[0].by}: {found[0].failure}")
    if every:
        print(f"{name}: caught by {len(found)} of {seeds} seeds: {', '.join(item.by for item in found)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="bugs, or simulations")
    parser.add_argument("--every", action="store_true", help="run all seeds, and count")
    options = parser.parse_args()
    chosen = [
        name
        for name, (suite, _) in BUGS.items()
        if not options.names or name in options.names or suite.name in options.names
    ]
    if not chosen:
        parser.error(f"there is none of these: {' '.join(options.names)}")
    if len(chosen) == 1:
        return hunt_one(chosen[0], options.every)
    flags = ["--every"] if options.every else []
    return max(
        subprocess.run([sys.executable, "-m", "tests.planting", name, *flags]).returncode for name in chosen
    )


if __name__ == "__main__":
    sys.exit(main())
