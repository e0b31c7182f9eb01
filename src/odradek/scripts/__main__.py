"""`python -m odradek.scripts topics --list …`, which the installed scripts call."""

import sys

from odradek.scripts.running import SCRIPTS, main

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in SCRIPTS:
        sys.exit(f"usage: python -m odradek.scripts {{{','.join(SCRIPTS)}}} …")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
