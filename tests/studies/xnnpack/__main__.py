"""`python -m tests.studies xnnpack [NAME ...]`: compare the samples with the results of the executorch wheel."""

import sys

from tests.studies.xnnpack.running import main

sys.exit(main(sys.argv[1:]))
