"""The program of docs/spark.md that runs a command of Ottla under spark-submit."""

import sys

from ottla.cli.main import main

sys.exit(main(sys.argv[1:]))
