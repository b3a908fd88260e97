"""The frame decoder: any split of any frames decodes the same, and a limit is a limit."""

import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_protocol.framing import FrameDecoder, FrameTooLargeError, encode_frame
from support.effort import examples

pytestmark = pytest.mark.core

FRAME = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"\r"))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def decode(pieces: list[bytes], limit: int) -> list[bytes]:
    decoder = FrameDecoder(limit)
    return [frame for piece in pieces for frame in decoder.feed(piece)]


@settings(max_examples=examples(300))
@given(frames=st.lists(FRAME, max_size=12), places=st.lists(st.integers(min_value=0), max_size=20))
def test_any_split_of_any_frames_decodes_the_same(frames, places):
    stream = b"".join(map(encode_frame, frames))
    assert decode(cut(stream, places), 40) == frames


@settings(max_examples=examples(300))
@given(
    frames=st.lists(FRAME, max_size=6),
    limit=st.integers(min_value=0, max_value=45),
    places=st.lists(st.integers(min_value=0), max_size=20),
)
def test_the_limit_holds_wherever_the_stream_is_cut(frames, limit, places):
    pieces = cut(b"".join(map(encode_frame, frames)), places)
    if all(len(frame) <= limit for frame in frames):
        assert decode(pieces, limit) == frames
    else:
        with pytest.raises(FrameTooLargeError) as caught:
            decode(pieces, limit)
        assert caught.value.limit_bytes == limit


@settings(max_examples=examples(200))
@given(stream=st.binary(max_size=300), places=st.lists(st.integers(min_value=0), max_size=20))
def test_what_is_pending_is_what_follows_the_last_line_end(stream, places):
    decoder = FrameDecoder(300)
    fed = b""
    for piece in cut(stream, places):
        decoder.feed(piece)
        fed += piece
        assert decoder.pending_bytes == len(fed.rpartition(b"\n")[2])


def test_a_frame_of_exactly_the_limit_passes_and_one_byte_more_does_not():
    assert decode([b"x" * 10 + b"\n"], 10) == [b"x" * 10]
    with pytest.raises(FrameTooLargeError):
        decode([b"x" * 11 + b"\n"], 10)


def test_an_endless_frame_is_refused_before_its_end():
    decoder = FrameDecoder(10)
    decoder.feed(b"x" * 10)
    with pytest.raises(FrameTooLargeError):
        decoder.feed(b"x")


def test_a_decoder_that_refused_a_frame_stays_refused():
    decoder = FrameDecoder(4)
    for piece in (b"12345", b"\n", b"{}\n"):
        with pytest.raises(FrameTooLargeError):
            decoder.feed(piece)


def test_a_long_frame_in_tiny_pieces_costs_about_its_own_length():
    limit = 400_000
    decoder = FrameDecoder(limit)
    piece = bytearray(b"ab")
    tracemalloc.start()
    try:
        for _ in range(limit // 2):
            decoder.feed(bytes(piece))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.pending_bytes == limit
    assert held < 1.5 * limit
    assert peak < 3 * limit  # growing may hold the old and the new buffer for a moment


def test_frames_are_bytes_of_their_own():
    decoder = FrameDecoder(100)
    first = decoder.feed(b"a\nb")
    assert (first, decoder.feed(b"c\n")) == ([b"a"], [b"bc"])
    assert all(type(frame) is bytes for frame in first)


def test_a_carriage_return_belongs_to_the_frame():
    assert decode([b"{}\r\n"], 10) == [b"{}\r"]


def test_a_message_with_a_raw_line_feed_is_no_frame():
    with pytest.raises(ValueError, match="one line"):
        encode_frame(b"{\n}")
