"""Places where nobody means to keep checkpoints, and that are refused unless asked for by force."""

import os
from collections.abc import Iterator
from typing import Final

from ckptd.shadow.store.settings import Settings

__all__ = ["protected_reason", "why_protected"]

_SYSTEM: Final = frozenset(
    b"/bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr "
    b"/usr/bin /usr/lib /usr/local /usr/sbin /usr/share /var /var/lib /var/log /var/tmp /Applications /Library "
    b"/System /Users /Volumes /private /tmp /private/tmp".split()
)
_KERNEL: Final = (b"/proc/", b"/sys/", b"/dev/")
# All that a person has; a project is a directory in one of them.
_PERSONAL: Final = (b"Desktop", b"Documents", b"Downloads")
# Where disks are mounted that come and go (and, in WSL, the drives of Windows).
_DISKS: Final = (b"/mnt/", b"/media/", b"/run/media/", b"/Volumes/")


def protected_reason(path: bytes, settings: Settings) -> str | None:
    """Say why a real path is protected, or None where it is not."""
    home = settings.home.rstrip(b"/") or b"/"
    if path == b"/":
        return "it is the root of the file system"
    if path == home:
        return "it is your home directory"
    if home.startswith(path + b"/"):
        return "your home directory lies in it"
    if path in _SYSTEM or path.startswith(_KERNEL):
        return "it is a system directory"
    if path == settings.temporary.rstrip(b"/"):
        return "it is the directory of all temporary files"
    if path in [os.path.join(home, name) for name in _PERSONAL]:
        return "it is where all of your files are"
    return None


def why_protected(path: bytes, settings: Settings) -> str | None:
    """Say why the directory at a real path is protected: by its name, or as another name of such a place has it.

    A bind mount gives the home directory a second name that no link tells of.
    """
    reason = protected_reason(path, settings)
    if reason is not None:
        return reason
    if path.startswith(_DISKS) and os.path.ismount(path):
        return "it is a whole disk"
    for place in _places(settings):
        if _is_same(path, place):
            return protected_reason(place, settings)
    return None


def _places(settings: Settings) -> Iterator[bytes]:
    home = settings.home.rstrip(b"/") or b"/"
    yield from (os.path.join(home, name) for name in _PERSONAL)
    yield settings.temporary.rstrip(b"/") or b"/"
    while True:
        yield home
        if home == os.path.dirname(home):
            return
        home = os.path.dirname(home)


def _is_same(path: bytes, place: bytes) -> bool:
    try:
        return os.path.samefile(path, place)
    except OSError:
        return False
