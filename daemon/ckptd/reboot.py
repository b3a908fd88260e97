"""What autosave needs to go on after a reboot, as the files of systemd tell it; nothing is run to find out."""

import os
import pwd
from collections.abc import Mapping
from typing import Final

from ckpt_protocol.address import home_dir
from ckpt_protocol.worktree import WatchReboot

__all__ = ["survey"]

_UNIT: Final = "ckptd.service"
_TARGET: Final = "default.target.wants"
_LINGER: Final = "/var/lib/systemd/linger"


def survey(environ: Mapping[str, str], linger_dir: str = _LINGER) -> WatchReboot:
    """Look whether the daemon's unit is there, starts with the session, and whether the session starts at boot."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(home_dir(environ), ".config")
    units = os.path.join(base, "systemd", "user")
    return WatchReboot(
        unit=os.path.exists(os.path.join(units, _UNIT)),
        enabled=os.path.lexists(os.path.join(units, _TARGET, _UNIT)),
        linger=os.path.exists(os.path.join(linger_dir, _user())),
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
