"""`python -m ottla.cli`: the same as the `ottla` command."""

import sys

from ottla.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
