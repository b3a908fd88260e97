"""Random ignore files and random paths: ours and git's answers are the same.

CKPT_TEST_LONG=1 draws a new seed and goes on for CKPT_TEST_ROUNDS rounds (100 if not given).
"""

import os
import random

import pytest

from support.ignore_oracle import GitOracle, rules_of_tree

pytestmark = pytest.mark.core

LONG = os.environ.get("CKPT_TEST_LONG") == "1"
ROUNDS = int(os.environ.get("CKPT_TEST_ROUNDS", "100")) if LONG else 2
SEED = random.SystemRandom().randrange(1 << 32) if LONG else 20240229
PLOTS = 120

NAME_ATOMS = (
    [b"a", b"b", b"c", b"ab", b"a.b", b".", b"x.c", b"foo"] * 4
    + [b"!", b"#", b" ", b"\\", b"[", b"]", b"-", b"^", b"*", b"?", b":", b"A", b"1", b"_", b"~"]
    + [b"\xff", b"\x80", "é".encode(), b"\t", b"\n", b"\r", b"\x7f", b"\x0b", b"{", b"$", b"(", b"|", b"+"]
)
PATTERN_ATOMS = (
    [b"a", b"b", b"c", b"ab", b"a.b", b".", b"x.c", b"foo"] * 3
    + [b"*", b"*", b"**", b"?", b"/", b"/", b"/", b"**/", b"/**", b"/**/", b"*/", b"/*", b"***"] * 2
    + [b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[]a]", b"[]-a]", b"[a-]", b"[--0]", b"[\\]]", b"[a\\-z]", b"[z-a]"]
    + [
        b"[[:alpha:]]",
        b"[![:digit:]]",
        b"[[:punct:]x]",
        b"[[:space:]]",
        b"[[:bogus:]]",
        b"[[:alpha:",
        b"[[:]",
        b"[:a:]",
    ]
    + [
        b"[",
        b"]",
        b"[!",
        b"[^",
        b"[a",
        b"-",
        b"!",
        b"^",
        b"[/]",
        b"[a/b]",
        b"[\xc3\xa9]",
        b"[\x80-\xff]",
        b"[[:cntrl:]]",
    ]
    + [b"\\", b"\\a", b"\\*", b"\\/", b"\\ ", b"\\[", b"\\\\", b"\\#", b"\\!", b"**\\/", b"*\\/", b"[\\", b"[a-\\"]
    + [
        b" ",
        b"  ",
        b"#",
        b"\xff",
        b"\x80",
        "é".encode(),
        b"\t",
        b"\r",
        b":",
        b"A",
        b"1",
        b"_",
        b"{a,b}",
        b"$",
        b"(",
        b"|",
    ]
)
ENDS = [b""] * 8 + [
    b"/",
    b"/",
    b" ",
    b"  ",
    b"\\ ",
    b"\\ \\ ",
    b"\\",
    b"\r",
    b" \r",
    b"/ ",
    b"\t",
    b"/**",
    b"/*",
    b"\0x",
]
STARTS = [b""] * 8 + [
    b"!",
    b"!",
    b"!",
    b"/",
    b"/",
    b"!/",
    b"#",
    b"\\#",
    b"\\!",
    b" ",
    b"**/",
    b"!!",
    b"//",
    b"\xef\xbb\xbf",
]


def make_name(draw):
    name = b"".join(draw.choices(NAME_ATOMS, k=draw.choice((1, 1, 1, 2, 2, 3))))
    return b"a" if name in (b".", b"..") or name.lower() == b".git" else name


def make_glob(draw):
    return b"".join(draw.choices(PATTERN_ATOMS, k=draw.choice((1, 1, 2, 2, 3, 4, 5, 7))))


def blur(draw, name):
    """Turn a name into a glob that is likely to match it."""
    out = b""
    for byte in (name[at : at + 1] for at in range(len(name))):
        out += draw.choice([byte] * 4 + [b"?", b"*", b"[" + byte + b"]", b"[!" + byte + b"]", b"\\" + byte, b"**"])
    return out


def make_line(draw, paths):
    if draw.random() < 0.5:
        glob = make_glob(draw)
    else:
        parts = draw.choice(paths).split(b"/")
        start = draw.randrange(len(parts))
        parts = parts[start : draw.randint(start + 1, len(parts))]
        glob = b"/".join(draw.choice([part, blur(draw, part), b"**", b"*"]) for part in parts)
        glob = glob.replace(b"/", draw.choice([b"/"] * 4 + [b"/**/", b"\\/", b"**/"]), 1)
    return draw.choice(STARTS) + glob + draw.choice(ENDS)


def make_file(draw, paths, lines):
    text = draw.choice([b"\n"] * 5 + [b"\r\n"]).join(make_line(draw, paths) for _ in range(draw.randint(1, lines)))
    return draw.choice([b""] * 9 + [b"\xef\xbb\xbf"]) + text + draw.choice([b"\n", b""])


def make_plot(draw, plot):
    """Make a small tree below ``plot``: its directories, its other paths, and its ignore files."""
    names = [make_name(draw) for _ in range(6)]
    within = [b"/".join(draw.choices(names, k=draw.choice((1, 1, 2, 2, 3, 4)))) for _ in range(24)]
    directories = {plot}
    for path in within:
        parts = path.split(b"/")
        whole = len(parts) + (draw.random() < 0.3)
        directories.update(plot + b"/" + b"/".join(parts[:end]) for end in range(1, whole))
    ignore_files = {plot: make_file(draw, within, 4)}
    for directory in sorted(directories):
        if directory != plot and draw.random() < 0.15:
            ignore_files[directory] = make_file(draw, within, 2)
    return directories, {plot + b"/" + path for path in within} | directories, ignore_files


@pytest.mark.timeout(0 if LONG else 120)
def test_git_and_we_agree_on_random_rules(tmp_path_factory):
    differences, ignored = [], 0
    for number in range(ROUNDS):
        draw = random.Random(f"{SEED} {number}")
        directories, paths, ignore_files = set(), set(), {}
        for plot in range(PLOTS):
            found = make_plot(draw, b"p%d" % plot)
            directories |= found[0]
            paths |= found[1]
            ignore_files.update(found[2])
        asked = sorted(paths)
        outer = [make_file(draw, asked, 3) if draw.random() < 0.7 else b"" for _ in range(3)]
        # Rules that speak of everything would hide the rest.
        outer = [b"\n".join(line for line in data.split(b"\n") if b"a" in line or b"b" in line) for data in outer]
        if outer[0]:
            ignore_files[b""] = outer[0]
        oracle = GitOracle(str(tmp_path_factory.mktemp("fuzz")), ignore_files, directories)
        oracle.set_exclude(outer[1])
        oracle.set_global_excludes(outer[2])
        rules = rules_of_tree(ignore_files, exclude=outer[1], global_excludes=outer[2])
        expected = oracle.ignored(asked)
        ignored += sum(expected.values()) / len(asked)
        for path in asked:
            if rules.ignored(path, path in directories) != expected[path]:
                plot = path.split(b"/")[0]
                said = {name: data for name, data in ignore_files.items() if not name or name.split(b"/")[0] == plot}
                differences.append((path, path in directories, expected[path], said, outer[1:]))
    assert not differences, f"seed {SEED}: {len(differences)} differences, such as {differences[:3]}"
    # Both answers must be frequent, or the comparison would prove little.
    assert 0.1 < ignored / ROUNDS < 0.9
