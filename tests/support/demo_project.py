"""A small project that reads like somebody's work, and what an agent gone wild makes of it: for pages and pictures."""

import shutil
from pathlib import Path

__all__ = ["make_project", "wreck_project"]

_FILES = {
    "README.md": "# shop\n\nA small shop. `python -m shop` runs it.\n",
    "pyproject.toml": '[project]\nname = "shop"\nversion = "0.3.0"\n',
    "src/shop/__init__.py": '"""A small shop."""\n',
    "src/shop/cart.py": (
        '"""What a customer is about to buy."""\n\n\n'
        "def total(lines):\n"
        '    """Give the price of all lines, in cents."""\n'
        "    return sum(price * count for price, count in lines)\n"
    ),
    "src/shop/prices.py": (
        '"""Prices and their discounts."""\n\n\n'
        "def discounted(price, percent):\n"
        '    """Give a price less some percent, rounded down to a cent."""\n'
        "    return price * (100 - percent) // 100\n"
    ),
    "src/shop/main.py": "from shop.cart import total\n\nprint(total([(250, 2), (999, 1)]))\n",
    "tests/test_cart.py": "from shop.cart import total\n\n\ndef test_total():\n    assert total([(250, 2)]) == 500\n",
    "tests/test_prices.py": (
        "from shop.prices import discounted\n\n\ndef test_discounted():\n    assert discounted(999, 10) == 899\n"
    ),
    "config.toml": 'currency = "EUR"\n',
    "run.sh": "#!/bin/sh\nPYTHONPATH=src exec python3 -m shop.main\n",
}


def make_project(place: Path) -> None:
    """Write the project into a directory that is empty or does not exist."""
    for name, content in _FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (place / "run.sh").chmod(0o755)


def wreck_project(place: Path) -> None:
    """Delete the tests, rewrite a module, and leave a file that nobody asked for."""
    shutil.rmtree(place / "tests")
    cart = place / "src" / "shop" / "cart.py"
    cart.write_text(cart.read_text().replace("sum(price * count for price, count in lines)", "0  # simplified"))
    (place / "src" / "shop" / "prices.py").unlink()
    (place / "src" / "shop" / "prices_v2.py").write_text('"""Prices, improved."""\n')
