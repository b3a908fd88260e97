"""``python -m ckptd.workers``: started by the daemon alone, spoken to through its stdin."""

import sys

from ckptd.workers.child import main

if __name__ == "__main__":
    sys.exit(main())
