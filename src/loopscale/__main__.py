"""`python -m loopscale` is the program `loopscale`."""

import sys

from loopscale.cli.main import main

if __name__ == "__main__":
    sys.argv[0] = "loopscale"
    sys.exit(main())
