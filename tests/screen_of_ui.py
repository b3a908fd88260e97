"""Makes ``docs/screens/ui.svg``: the real ``ckpt ui``, on a worktree of a day's work that has just been wrecked.

``python3 tests/screen_of_ui.py``, with a Python that has the project's dev group (that of ``.venv-test/`` has).
"""

import asyncio
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("protocol", "daemon", "client", "tests")]

from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore  # noqa: E402
from fabricatio_checkpoint.store import CheckPointStore  # noqa: E402
from fabricatio_checkpoint.ui.app import Look, TimelineApp  # noqa: E402
from fabricatio_checkpoint.ui.pace import Pace  # noqa: E402
from fabricatio_checkpoint.ui.source import Source  # noqa: E402
from support import isolation  # noqa: E402
from support.resident import Resident  # noqa: E402

SCREEN = ROOT / "docs" / "screens" / "ui.svg"
SIZE = (108, 30)
FONTS = '"DejaVu Sans Mono", Menlo, Consolas, monospace'
MINUTE, HOUR, DAY = 60, 3600, 86400

CART = '''\
"""The shopping cart."""

from shop.price import Price


class Cart:
    """What a customer wants to buy."""

    def __init__(self) -> None:
        self.items: list[Price] = []

    def total(self) -> Price:
        """Add up."""
        return sum(self.items, Price(0))
'''
DISCOUNT = '''
    def discounted(self, percent: int) -> Price:
        """Add up, less a discount."""
        return self.total() * (100 - percent) // 100
'''
WRECK = '''\
"""The shopping cart."""


class Cart:
    """TODO: rewrite this."""

    def total(self):
        raise NotImplementedError
'''


def main() -> None:
    """Record the screen."""
    base = Path(isolation.short_directory("cku"))
    daemon = Resident(base, "shop")
    try:
        daemon.start()
        asyncio.run(_record(daemon))
    finally:
        daemon.close()
        isolation.remove(str(base))


def _work(daemon: Resident, store: CheckPointStore) -> None:
    """A day's work, and what an agent left of it."""
    root = daemon.ws

    def save(ago_s: float, message: str, change: Callable[[], object], **options: str) -> None:
        change()
        daemon.clock.offset_s = -ago_s
        store.save(message, **options)

    def write(path: str, text: str) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    def begin() -> None:
        write("shop/cart.py", CART)
        write("shop/price.py", "class Price(int):\n    pass\n")
        write("shop/__init__.py", "")
        write("README.md", "# shop\n")
        write("pyproject.toml", "[project]\nname = 'shop'\n")

    def document() -> None:
        write("docs/ordering.md", "# Ordering\n\nPut things into a cart.\n")
        write("README.md", "# shop\n\nSee docs.\n")

    save(2 * DAY, "the cart works", begin, tag="v0.1")
    save(26 * HOUR, "documentation", document)
    save(5 * HOUR, "discounts", lambda: write("shop/cart.py", CART + DISCOUNT))
    save(4 * HOUR, "Edit shop/price.py", lambda: write("shop/price.py", "class Price(int):\n    ...\n"), kind="auto")
    save(70 * MINUTE, "tests for discounts", lambda: write("tests/test_cart.py", "def test(): ...\n"), tag="green")
    save(12 * MINUTE, "before the agent", lambda: write("TASK.md", "Make the cart faster.\n"))
    daemon.clock.offset_s = 0.0
    write("shop/cart.py", WRECK)
    write("shop/fast_cart.py", "# faster\n")
    write("notes.txt", "tried: everything\n")
    shutil.rmtree(root / "tests")
    (root / "docs" / "ordering.md").unlink()


async def _record(daemon: Resident) -> None:
    service = daemon.service()
    store = service.get_store(daemon.ws)
    _work(daemon, store)
    source = Source(AsyncCheckpointService.of(service), AsyncCheckPointStore(store))
    app = TimelineApp(source, Pace(may_start=False), Look(home=str(daemon.base)))
    async with app.run_test(size=SIZE) as pilot:
        await _until(lambda: app.status is not None and app.compared is not None)
        await pilot.press("home", "tab", "down", "down")
        await _until(lambda: app.patch_shown == "shop/cart.py")
        await pilot.pause()
        SCREEN.parent.mkdir(exist_ok=True)
        SCREEN.write_text(_at_home(app.export_screenshot(title="ckpt ui")))


def _at_home(svg: str) -> str:
    """Let a picture load nothing from elsewhere: the viewer's own fonts do."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: Fira Code[^;]*;", f"font-family: {FONTS};", svg)


async def _until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise SystemExit("the screen has not become what it should be")


if __name__ == "__main__":
    main()
