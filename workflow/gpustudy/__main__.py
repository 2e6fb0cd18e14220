"""``python -m gpustudy``: the command line of the package."""

from gpustudy.cli import main

raise SystemExit(main())
