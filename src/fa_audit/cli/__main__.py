"""Run the command line as `python -m fa_audit.cli`."""

import sys

from fa_audit.cli import main

sys.exit(main())
