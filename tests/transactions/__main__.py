"""Replay one seed of transactions with everything that happened, or run many.

python -m tests.transactions 17                     the trace of seed 17
python -m tests.transactions 17 --hash              a hash of it
python -m tests.transactions --seeds 0:1000        many; stops at the first that fails
"""

import sys

from tests.simulation.seeds_command import main
from tests.transactions.run import run_seed

sys.exit(main(run_seed, __doc__))
