"""Replay one seed with everything that happened, or run many.

python -m tests.cluster 17                     the trace of seed 17
python -m tests.cluster 17 --hash              a hash of it
python -m tests.cluster --seeds 0:1000        many; stops at the first that fails
"""

import sys

from tests.cluster.run import run_seed
from tests.simulation.seeds_command import main

sys.exit(main(run_seed, __doc__))
