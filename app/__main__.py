"""`python -m app` is `safelight`."""

import sys

from app.command_line import main

sys.exit(main())
