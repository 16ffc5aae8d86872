"""`python -m webpte` is the `webpte` command."""

import sys

from .cli import main

sys.exit(main())
