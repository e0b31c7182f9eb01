"""Replay one seed with everything that happened, or run many.

python -m tests.simulation 17                     the trace of seed 17
python -m tests.simulation 17 --hash              a hash of it
python -m tests.simulation --seeds 0:10000        many; stops at the first that fails
"""

import sys

from tests.simulation.run import run_seed
from tests.simulation.seeds_command import main

sys.exit(main(run_seed, __doc__, range(1000)))
