"""`odradek up`, with faults on demand. For `odradek.testing`, which has the other end of our standard input."""

import sys

from odradek.cli.up import main
from odradek.faults.broker import FaultyBroker

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "up", FaultyBroker))
