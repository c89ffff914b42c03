"""Leaves out the tests of SDKs that this interpreter does not belong to.

The environment of an SDK collects its own file and no other, so that there a missing SDK is an
error and not a skip. A file that is named on the command line is always collected.
"""

import sys
from pathlib import Path

from adapters.tables import foreign_tests

collect_ignore = list(map(str, foreign_tests(Path(sys.prefix))))
