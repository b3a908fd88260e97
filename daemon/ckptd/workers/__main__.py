"""``python -m ckptd.workers``: started by the daemon alone, spoken to through its stdin."""

import os

from ckptd.workers.child import main

if __name__ == "__main__":
    # All is written and closed, and the daemon waits for the end: to take apart what is in memory is of no use.
    os._exit(main())
