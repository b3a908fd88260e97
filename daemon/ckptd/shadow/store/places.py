"""Places where nobody means to keep checkpoints, and that are refused unless asked for by force."""

from typing import Final

from ckptd.shadow.store.settings import Settings

__all__ = ["protected_reason"]

_SYSTEM: Final = frozenset(
    b"/bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr "
    b"/usr/bin /usr/lib /usr/local /usr/sbin /usr/share /var /var/lib /var/log /var/tmp /Applications /Library "
    b"/System /Users /Volumes /private".split()
)
_KERNEL: Final = (b"/proc/", b"/sys/", b"/dev/")


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
    return None
