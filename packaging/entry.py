"""What the frozen program starts with; its child processes too, with a hidden first argument."""

import multiprocessing
import sys

from app.command_line import main

if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
