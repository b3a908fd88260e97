"""``ckptd``, or ``python -m ckptd``: the daemon, in the foreground."""

import argparse
import gc
import logging
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ckpt_protocol import address as addresses
from ckpt_protocol.endpoint import AddressError, parse
from ckpt_protocol.version import BUILD
from ckptd import config, listen, log, notify
from ckptd.autosave import Autosave
from ckptd.deadline import Deadline
from ckptd.lock import DataLocks, this_process
from ckptd.watched import WatchedDirectories

if TYPE_CHECKING:
    from ckptd.chore import Said
    from ckptd.core.ports import Catalog
    from ckptd.shadow.scan.witness import WitnessMaker

__all__ = ["Options", "main", "run_daemon"]

EXIT_OK: Final = 0
EXIT_DAEMON: Final = 60
EXIT_BUG: Final = 70

_SWITCH_INTERVAL_S: Final = 0.0005
_GC_THRESHOLDS: Final = (10_000, 4, 1250)
_PATIENCE_S: Final = 60.0
_NOT_OURS: Final = ("GIT_", "PYTHONWARNINGS")
"""Variables about other programs, which the processes of the daemon do not inherit either."""

_logger = logging.getLogger("ckptd")


class Options(NamedTuple):
    """The command line: ``socket`` None means the usual place; ``stderr`` logs there whatever else is said."""

    socket: str | None = None
    stderr: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon until it is told to stop or idle for long, or do a chore; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    # PYTHONWARNINGS is about the user's own programs; what a library deprecates is no reason to end.
    warnings.simplefilter("ignore")
    if words[:1] == ["doctor"]:
        from ckptd.doctor import report

        return _say(report.run(words[1:], os.environ))
    if words[:1] == ["install-units"]:
        from ckptd import install

        return _say(install.run(words[1:], os.environ))
    if words == ["discover"]:
        return _say(_describe())
    return run_daemon(_parse(words), _shadow_catalog)


def run_daemon(options: Options, catalog_factory: Callable[[], "Catalog"], patience_s: float = _PATIENCE_S) -> int:
    """Run a daemon on the stores that ``catalog_factory`` gives; return the exit code.

    0: it was told to stop, or had nothing to do; 60: the address cannot be had; 70: a bug, which is in the log, or
    something that hung for ``patience_s`` seconds when it was to end. The factory is called once the socket is
    bound, so that its imports hold up nobody who connects.
    """
    environ = os.environ
    _prepare_process(environ)
    supervisor = notify.take_supervisor(environ)
    settings = config.load(environ)
    journal = options.stderr or "JOURNAL_STREAM" in environ
    log.configure(None if journal else addresses.state_dir(environ))
    for complaint in settings.complaints:
        _logger.warning("%s", complaint)
    try:
        address = _take_address(options, settings, environ)
    except (listen.AddressInUseError, AddressError, OSError) as error:
        if not journal:
            _logger.error("%s", error)
        print(f"ckptd: {error}", file=sys.stderr)  # noqa: T201 - the one line for whoever started it
        return EXIT_DAEMON
    locks = DataLocks(this_process(address.text))
    deadline = Deadline(patience_s, address.remove)
    try:
        return _run(address, settings, locks, catalog_factory, supervisor, deadline)
    finally:
        # Also what broke may have left a thread that never ends.
        deadline.start()
        address.close()
        locks.close()


def _run(
    address: listen.Address,
    settings: config.Config,
    locks: DataLocks,
    catalog_factory: Callable[[], "Catalog"],
    supervisor: notify.Supervisor,
    deadline: Deadline,
) -> int:
    try:
        # Heavy imports, after the socket is there and before anything is answered.
        import anyio

        from ckptd import reboot
        from ckptd.life import Watching, live
        from ckptd.modules import load_all
        from ckptd.shadow.store.memory import share_one_heap
        from ckptd.workers.main_thread import MAIN_THREAD

        load_all()
        share_one_heap()
        # What has been imported stays: no collection need look at it again.
        gc.freeze()
        catalog = catalog_factory()
        known = WatchedDirectories(addresses.state_dir(os.environ))
        watching = Watching(known.read(), partial(_remember, known), lambda: reboot.survey(os.environ))

        async def begin() -> None:
            MAIN_THREAD.attach()
            await live(address, settings, catalog, locks, supervisor, deadline, watching)

        anyio.run(begin)
    except Exception as error:
        _logger.exception("the daemon ends because of a bug")
        print(f"ckptd: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - for whoever started it
        return EXIT_BUG
    return EXIT_OK


def _remember(known: WatchedDirectories, checkpoint_dir: bytes) -> None:
    try:
        known.add(checkpoint_dir)
    except OSError as error:
        _logger.warning("the next daemon will not know of autosave until a client comes: %s", error)


def _shadow_catalog() -> "Catalog":
    from ckptd.shadow.record.thinning import Keep
    from ckptd.shadow.scan.userconfig import global_excludes_path
    from ckptd.shadow.store.catalog import ShadowCatalog
    from ckptd.shadow.store.settings import Overrides, Settings
    from ckptd.workers.main_thread import MAIN_THREAD
    from ckptd.workers.pool import ProcessPool, worker_count

    def overrides_of(worktree: bytes) -> Overrides:
        found = config.worktree_options(worktree)
        exclude = None if found.exclude is None else tuple(map(os.fsencode, found.exclude))
        return Overrides(exclude, found.max_file_bytes, found.complaints, found.autosave_wishes())

    options = config.load(os.environ)
    home = os.fsencode(os.path.realpath(addresses.home_dir(os.environ)))
    config_home = os.fsencode(os.environ.get("XDG_CONFIG_HOME", "")) or os.path.join(home, b".config")
    return ShadowCatalog(
        Settings(
            home=home,
            temporary=os.fsencode(os.path.realpath(tempfile.gettempdir())),
            max_file_bytes=options.max_file_bytes,
            one_file_system=options.one_file_system,
            exclude=tuple(map(os.fsencode, options.exclude)),
            git_excludes_path=global_excludes_path(home, config_home) if options.use_git_excludes else None,
            autosave=Autosave(options.autosave, options.autosave_quiet_s, options.autosave_max_wait_s),
            overrides_of=overrides_of,
            keep=Keep(
                options.keep_last,
                options.keep_hourly,
                options.keep_daily,
                options.keep_weekly,
                options.keep_manual_days,
                options.max_store_bytes,
            ),
            helpers=ProcessPool(workers, MAIN_THREAD.spawn) if (workers := worker_count()) else None,
            scan_budget_ms=options.scan_budget_ms,
            witness_maker=_witness_maker() if options.scan == "auto" else None,
        )
    )


def _witness_maker() -> "WitnessMaker | None":
    """Give what makes an exact watcher, None on a system that has no inotify."""
    if not sys.platform.startswith("linux"):
        return None
    from ckptd.exact.watcher import ExactWatcher

    return ExactWatcher


def _describe() -> "Said":
    import msgspec

    from ckpt_protocol import openrpc
    from ckptd.chore import Said

    text = msgspec.json.format(msgspec.json.encode(openrpc.document()), indent=2)
    return Said(EXIT_OK, text.decode())


def _say(said: "Said") -> int:
    for text, stream in ((said.out, sys.stdout), (said.err, sys.stderr)):
        if text:
            print(text, file=stream)
    return said.code


def _parse(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="ckptd",
        description="Keep the checkpoints of this user's worktrees.",
        epilog="Chores, which run no daemon: ckptd doctor, ckptd install-units, ckptd discover.",
    )
    parser.add_argument(
        "--socket", metavar="PATH", help="listen here: a path in a directory of mode 0700, or tcp:127.0.0.1:PORT"
    )
    parser.add_argument("--stderr", action="store_true", help="log to stderr instead of the log file")
    parser.add_argument("--version", action="version", version=f"ckptd {BUILD}")
    found = parser.parse_args(argv)
    address = found.socket
    if address is not None and not address.startswith(addresses.SCHEMES):
        address = os.path.abspath(address)
    return Options(address, found.stderr)


def _prepare_process(environ: MutableMapping[str, str]) -> None:
    os.umask(0o077)
    # No directory is kept from being unmounted or removed.
    os.chdir("/")
    for name in [name for name in environ if name.startswith(_NOT_OURS)]:
        del environ[name]
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # A scan makes a hundred thousand short-lived objects and no cycle: looking for some among the models of large
    # trees, with the interpreter locked, took a third of its time. Seldom, and never at many at once: a look at a
    # million holds everybody up for a quarter of a second.
    gc.set_threshold(*_GC_THRESHOLDS)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _logger.info("the limit of open files stays: %s", error)


def _take_address(options: Options, settings: config.Config, environ: MutableMapping[str, str]) -> listen.Address:
    passed = notify.adopt_sockets(environ)
    for extra in passed[1:]:
        extra.close()
    if passed and isinstance(name := passed[0].getsockname(), str) and os.path.isabs(name):
        return listen.Address(name, passed[0])
    # A command-line path is taken as it is: who gives it has to find the daemon there.
    given = options.socket is not None and not options.socket.startswith(addresses.SCHEMES)
    wanted = options.socket if given else addresses.socket_path(environ, options.socket or settings.socket)
    return _listen_at(wanted or "")


def _listen_at(text: str) -> listen.Address:
    if not text.startswith(addresses.SCHEMES):
        return listen.Address(text)
    endpoint = parse(text)
    if endpoint.scheme == "pipe":
        from ckptd.pipe import PipeAddress

        return PipeAddress(endpoint)
    from ckptd.tcp import TcpAddress

    return TcpAddress(endpoint)


if __name__ == "__main__":
    sys.exit(main())
