"""The dependency rules: the contracts of ``pyproject.toml``, and the finer rules that they cannot say."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ckpt_protocol.version import BUILD

pytestmark = pytest.mark.core

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"ckpt_protocol": "protocol", "ckptd": "daemon", "fabricatio_checkpoint": "client"}


class Module(NamedTuple):
    """One source file of the three packages."""

    name: str
    tree: ast.Module

    def is_in(self, *allowed: str) -> bool:
        """Whether it is one of these modules, or lies below one of them."""
        return any(self.name == place or self.name.startswith(place + ".") for place in allowed)


def _modules() -> Iterator[Module]:
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield Module(name, ast.parse(path.read_bytes(), str(path)))


MODULES = list(_modules())


def offenders(found, *allowed: str) -> list[str]:
    """Where a rule is broken: ``found`` gives the line numbers in a tree."""
    return [f"{module.name}:{line}" for module in MODULES if not module.is_in(*allowed) for line in found(module.tree)]


def imports_of(*names: str):
    def found(tree: ast.Module) -> Iterator[int]:
        for node in ast.walk(tree):
            wanted = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                wanted = [node.module]
            if any(name.partition(".")[0] in names for name in wanted):
                yield node.lineno

    return found


def attributes(module: str, *names: str):
    """Uses of ``module.name`` and imports of a name from the module."""

    def found(tree: ast.Module) -> Iterator[int]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == module and node.attr in names:
                    yield node.lineno
            elif isinstance(node, ast.ImportFrom) and node.module == module:
                yield from (node.lineno for alias in node.names if alias.name in names)

    return found


def calls_of(name: str):
    def found(tree: ast.Module) -> Iterator[int]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield node.lineno

    return found


def caught(handler: ast.ExceptHandler) -> set[str]:
    """The names of what a handler catches; a bare ``except`` catches ``BaseException``."""
    if handler.type is None:
        return {"BaseException"}
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {kind.id for kind in kinds if isinstance(kind, ast.Name)}


def broad_handlers(tree: ast.Module) -> Iterator[int]:
    """Handlers of everything, but for those that tidy up after BaseException and let it go on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            names = caught(node)
            last = node.body[-1]
            goes_on = isinstance(last, ast.Raise) and last.exc is None
            if "Exception" in names or ("BaseException" in names and not goes_on):
                yield node.lineno


def handlers_of(name: str):
    def found(tree: ast.Module) -> Iterator[int]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and name in caught(node):
                yield node.lineno

    return found


def test_the_rules_look_at_something():
    assert {module.name.partition(".")[0] for module in MODULES} >= {"ckpt_protocol", "ckptd"}
    assert len(MODULES) > 20


def test_the_contracts_hold():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": ":".join(str(ROOT / folder) for folder in PACKAGES.values())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert f"{len(contracts)} kept, 0 broken" in done.stdout


def test_every_contract_gives_its_reason():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert all(": " in contract["name"] for contract in contracts)


def test_the_protocol_imports_msgspec_and_the_standard_library_alone():
    allowed = set(sys.stdlib_module_names) | {"msgspec", "ckpt_protocol"}
    for module in MODULES:
        if module.is_in("ckpt_protocol"):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Import):
                    assert {alias.name.partition(".")[0] for alias in node.names} <= allowed, module.name
                elif isinstance(node, ast.ImportFrom):
                    assert node.level == 0, module.name
                    assert node.module.partition(".")[0] in allowed, module.name


@pytest.mark.parametrize(
    ("library", "home"),
    [
        ("jsonrpcserver", "ckptd.dispatch"),
        ("watchfiles", "ckptd.watch"),
        ("pygit2", "ckptd.shadow"),
        ("textual", "fabricatio_checkpoint.ui"),
        ("dotenv", "fabricatio_checkpoint.dotenvfile"),
        ("fabricatio_core", "fabricatio_checkpoint"),
        ("mcp", "fabricatio_checkpoint.mcp"),
        ("mcp_types", "fabricatio_checkpoint.mcp"),
    ],
)
def test_a_library_is_imported_in_one_place(library, home):
    assert offenders(imports_of(library), home) == []


def test_only_what_shows_something_to_a_person_renders():
    assert offenders(imports_of("rich"), "fabricatio_checkpoint.cli", "fabricatio_checkpoint.ui") == []


def test_only_its_command_imports_the_timeline():
    for module in MODULES:
        if module.is_in("fabricatio_checkpoint.ui", "fabricatio_checkpoint.cli.commands.ui"):
            continue
        names = [node.module or "" for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)]
        assert not any(name.startswith("fabricatio_checkpoint.ui") for name in names), module.name


def test_nobody_imports_the_entry_points():
    for module in MODULES:
        imported = {
            alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not any("__main__" in name for name in imported), module.name


def test_only_entry_points_config_and_launch_read_environment_and_arguments():
    allowed = (
        "ckptd.__main__",
        "ckptd.config",
        "fabricatio_checkpoint.config",
        "fabricatio_checkpoint.launch",
        "fabricatio_checkpoint.cli",
    )
    read = [
        *offenders(attributes("os", "environ", "environb", "getenv", "getenvb"), *allowed),
        *offenders(attributes("sys", "argv", "orig_argv"), *allowed),
    ]
    assert read == []


def test_only_the_command_line_and_the_daemon_s_last_words_are_printed():
    assert offenders(calls_of("print"), "fabricatio_checkpoint.cli", "ckptd.__main__") == []


def test_only_a_few_places_catch_everything():
    mains = [module.name for module in MODULES if module.name.endswith("__main__")]
    # The worker is the actor's own thread: what a job raises there goes to the actor, whatever it is.
    # Autosave is asked for by nobody who could hear that it broke.
    core = ("ckptd.core.actor", "ckptd.core.autosaver", "ckptd.core.worker")
    # A thread that reads events and dies unheard would leave a witness that knows nothing any more.
    # A bug in one tool must not cost an agent all the others.
    served = ("ckptd.dispatch", "fabricatio_checkpoint.mcp.server")
    # What a piece of work raises in a helper's thread is raised again where it was given.
    threads = (
        "ckptd.exact.watcher",
        "ckptd.shadow.objects.pieces",
        "ckptd.shadow.restore.crew",
        "ckptd.shadow.store.relay",
    )
    assert offenders(broad_handlers, *served, *threads, *core, *mains) == []


def test_nobody_swallows_a_bug_by_name():
    assert offenders(handlers_of("AssertionError")) == []


def test_nothing_is_executed_from_text():
    for name in ("eval", "exec"):
        assert offenders(calls_of(name)) == []
    # The command line loads the module that the grammar's table names: importlib would cost it more than that.
    assert offenders(calls_of("__import__"), "fabricatio_checkpoint.cli.__main__") == []
    assert offenders(imports_of("pickle", "marshal", "shelve")) == []
    assert offenders(attributes("os", "system", "popen")) == []


def test_nobody_forks():
    # A forked child would keep the daemon's lock and its threads' locks.
    assert offenders(attributes("os", "fork", "forkpty")) == []


def test_daemon_and_git_side_compile_for_the_oldest_python():
    for folder in PACKAGES.values():
        for path in (ROOT / folder).rglob("*.py"):
            ast.parse(path.read_bytes(), str(path), feature_version=(3, 11))


def test_source_roots_are_no_packages():
    for folder in PACKAGES.values():
        assert not (ROOT / folder / "__init__.py").exists()


def test_the_packages_are_marked_as_typed():
    assert all((ROOT / folder / package / "py.typed").exists() for package, folder in PACKAGES.items())


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == BUILD


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(str(ROOT / folder) for folder in PACKAGES.values())},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


HEAVY = {"anyio", "asyncio", "jsonrpcserver", "mcp", "mcp_types", "pygit2", "rich", "textual", "watchfiles"}


def test_importing_the_client_is_light():
    assert loaded_by("import fabricatio_checkpoint") & HEAVY == set()


def test_the_command_line_starts_without_msgspec():
    loaded = loaded_by("import fabricatio_checkpoint.cli.__main__")
    assert loaded & (HEAVY | {"msgspec", "tomllib"}) == set()


def test_the_timeline_is_loaded_once_somebody_looks_at_it():
    loaded = loaded_by("import fabricatio_checkpoint.cli.commands.ui, fabricatio_checkpoint.ui.keys")
    assert loaded & (HEAVY | {"msgspec"}) == set()


@pytest.mark.parametrize("name", ["version", "wirepath", "framing", "errors", "address", "endpoint", "proof", "remote"])
def test_the_light_half_of_the_protocol_is_light(name):
    assert loaded_by(f"import ckpt_protocol.{name}") & (HEAVY | {"msgspec"}) == set()


def test_the_git_side_loads_no_event_loop():
    names = [module.name for module in MODULES if module.is_in("ckptd.shadow")]
    assert loaded_by("; ".join(f"import {name}" for name in names)) & {"anyio", "asyncio", "jsonrpcserver"} == set()
