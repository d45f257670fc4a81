"""Pictures of all kinds are decoded to the same bytes by every library, and what is broken is refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from preprocess.samples.errors import DecodeError
from preprocess.transforms.decode import MOST_PIXELS, decode_picture, image_size
from tests.preprocess.support.photographs import encoded, photograph

decoding: ModuleType = import_module("preprocess.transforms.decode")

PHOTO = photograph(61, 83)
LIBRARIES = {
    "simplejpeg": ("simplejpeg", "PIL.Image"),
    "OpenCV": ("cv2",),
    "both": ("cv2", "PIL.Image"),
    "Pillow": ("PIL.Image",),
}
OTHERS = ("OpenCV", "Pillow")
Restrict = Callable[[str], None]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Restrict:
    """Let `decode_picture` find some of the libraries alone."""

    def restrict(name: str) -> None:
        names = LIBRARIES[name]
        monkeypatch.setattr(decoding, "_library", lambda wanted: import_module(wanted) if wanted in names else None)

    return restrict


def array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


JPEGS = {
    "usual": encoded(PHOTO, "JPEG", quality=90),
    "full colour": encoded(PHOTO, "JPEG", quality=95, subsampling=0),
    "progressive": encoded(PHOTO, "JPEG", progressive=True),
    "restarts": encoded(PHOTO, "JPEG", restart_marker_blocks=3),
    "grey": encoded(PHOTO[..., 0], "JPEG"),
    "stored as RGB": encoded(PHOTO, "JPEG", keep_rgb=True),
    "one pixel": encoded(PHOTO[:1, :1], "JPEG"),
    "one row": encoded(PHOTO[:1], "JPEG"),
    "rubbish behind": encoded(PHOTO, "JPEG") + b"\0" * 7,
}


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_library_decodes_a_jpeg_to_the_same_bytes(only: Restrict, kind: str, channels: int) -> None:
    content = array(JPEGS[kind])
    wanted = decode_picture(content, channels)
    assert wanted.dtype == np.uint8 and wanted.shape == (*image_size(content), channels)
    for name in LIBRARIES:
        only(name)
        assert np.array_equal(decode_picture(content, channels), wanted), name
        assert image_size(content) == wanted.shape[:2], name


def test_a_decoded_jpeg_looks_like_its_original() -> None:
    off = np.abs(decode_picture(JPEGS["full colour"]).astype(int) - PHOTO)
    assert off.mean() < 4 and off.max() < 40
    grey = decode_picture(JPEGS["full colour"], 1)[..., 0].astype(int)
    assert np.abs(grey - np.asarray(Image.fromarray(PHOTO).convert("L"))).mean() < 3


def test_cmyk_is_turned_into_rgb(only: Restrict) -> None:
    content = encoded(Image.fromarray(PHOTO).convert("CMYK"), "JPEG", quality=95)
    found = {}
    for name in LIBRARIES:
        only(name)
        found[name] = decode_picture(content).astype(int)
        assert np.abs(found[name] - PHOTO).mean() < 8, name
        assert decode_picture(content, 1).shape == (61, 83, 1)
    assert np.array_equal(found["simplejpeg"], found["Pillow"]) and np.array_equal(found["both"], found["Pillow"])
    assert np.abs(found["OpenCV"] - found["Pillow"]).max() <= 1


def luma(colours: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(colours.astype(float), -1, 0)
    return np.floor(0.299 * red + 0.587 * green + 0.114 * blue + 0.5)[..., None]


def pictures() -> dict[str, tuple[bytes, np.ndarray]]:
    """Encoded without loss -> the colours that it holds."""
    grey = np.repeat(PHOTO[..., :1], 3, 2)
    alpha = np.dstack([PHOTO, PHOTO[::-1, :, 0]])
    palette = Image.fromarray(PHOTO).quantize(32)
    looked_up = np.asarray(palette.convert("RGB"))
    wide = PHOTO.astype(np.uint16) * 256 + photograph(61, 83, 1)
    black_and_white = Image.fromarray(PHOTO[..., 0] > 128)
    wide_png = cv2.imencode(".png", wide[..., ::-1])[1].tobytes()
    return {
        "PNG": (encoded(PHOTO, "PNG"), PHOTO),
        "PNG, alpha": (encoded(alpha, "PNG"), PHOTO),
        "PNG, grey": (encoded(PHOTO[..., 0], "PNG"), grey),
        "PNG, grey and alpha": (encoded(Image.fromarray(PHOTO[..., :2].copy(), "LA"), "PNG"), grey),
        "PNG, palette": (encoded(palette, "PNG"), looked_up),
        "PNG, transparent palette": (encoded(palette, "PNG", transparency=bytes(range(0, 96, 3))), looked_up),
        "PNG, one bit": (encoded(black_and_white, "PNG"), np.repeat((PHOTO[..., :1] > 128) * np.uint8(255), 3, 2)),
        "PNG, grey of 16 bits": (encoded(wide[..., 0].copy(), "PNG"), grey),
        "PNG, 16 bits": (wide_png, PHOTO),
        "WebP": (encoded(PHOTO, "WEBP", lossless=True), PHOTO),
        "BMP": (encoded(PHOTO, "BMP"), PHOTO),
        "GIF": (encoded(palette, "GIF"), looked_up),
        "TIFF": (encoded(PHOTO, "TIFF"), PHOTO),
        "TIFF, deflated": (encoded(PHOTO, "TIFF", compression="tiff_adobe_deflate"), PHOTO),
        "PPM": (encoded(PHOTO, "PPM"), PHOTO),
        "PGM": (encoded(PHOTO[..., 0], "PPM"), grey),
    }


PICTURES = pictures()


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("name", OTHERS)
def test_lossless_pictures_are_decoded_to_what_they_hold(only: Restrict, kind: str, name: str) -> None:
    only(name)
    content, colours = PICTURES[kind]
    assert np.array_equal(decode_picture(array(content)), colours)
    assert np.abs(decode_picture(content, 1) - luma(colours)).max() <= (kind not in ("PNG, grey", "PGM"))
    assert image_size(content) == (61, 83)


@pytest.mark.parametrize("kind", [kind for kind in PICTURES if kind != "WebP"])
def test_grey_of_colours_does_not_depend_on_the_library(only: Restrict, kind: str) -> None:
    greys = []
    for name in OTHERS:
        only(name)
        greys.append(decode_picture(PICTURES[kind][0], 1))
    one, other = greys
    assert np.array_equal(one, other)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_orientation_of_exif_is_not_applied(only: Restrict, form: str) -> None:
    exif = Image.Exif()
    exif[274] = 6  # turn by a quarter
    content, plain = (encoded(PHOTO, form, **options) for options in ({"exif": exif}, {}))
    for name in LIBRARIES:
        only(name)
        assert np.array_equal(decode_picture(content), decode_picture(plain)), name
        assert image_size(content) == (61, 83)


def test_orientation_of_tiff_is_part_of_its_format() -> None:
    exif = Image.Exif()
    exif[274] = 6
    content = encoded(PHOTO, "TIFF", exif=exif)
    assert np.array_equal(decode_picture(content), np.rot90(PHOTO, -1)) and image_size(content) == (83, 61)


def test_the_first_picture_of_many_is_taken(only: Restrict) -> None:
    frames = [Image.fromarray(photograph(20, 30, seed)) for seed in range(3)]
    content = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    for name in OTHERS:
        only(name)
        assert np.array_equal(decode_picture(content), np.asarray(frames[0]))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_result_is_written_where_it_fits(kind: str) -> None:
    content = JPEGS["usual"] if kind == "JPEG" else PICTURES["PNG"][0]
    wanted = decode_picture(content)
    fitting = np.zeros((61, 83, 3), np.uint8)
    assert decode_picture(content, 3, fitting) is fitting and np.array_equal(fitting, wanted)
    for other in (
        np.zeros((61, 82, 3), np.uint8),
        np.zeros((83, 61, 3), np.uint8),
        np.zeros((61, 83, 1), np.uint8),
        np.zeros((99, 99, 3), np.uint8),
        np.zeros((61, 83, 3), np.float32),
    ):
        found = decode_picture(content, 3, other)
        assert found is not other and np.array_equal(found, wanted) and not other.any()
    spread = np.zeros((122, 83, 3), np.uint8)[::2]
    assert np.array_equal(decode_picture(content, 3, spread), wanted)
    assert np.array_equal(spread, wanted)


def test_content_may_come_in_any_kind_of_bytes() -> None:
    content = JPEGS["usual"]
    wanted = decode_picture(content)
    readable = array(content)
    assert not readable.flags.writeable
    for same in (readable, bytearray(content), memoryview(content), readable.copy()):
        assert np.array_equal(decode_picture(same), wanted)
    for other in (readable[::2], readable[None], readable.astype(np.int64)):
        with pytest.raises(TypeError, match="contiguous 1-D array of bytes"):
            decode_picture(other)
    with pytest.raises(ValueError, match="channels is 4: 3 for RGB or 1 for grey"):
        decode_picture(content, 4)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("kind", ["usual", "progressive", "restarts", "grey"])
def test_a_jpeg_that_is_cut_off_is_refused(only: Restrict, name: str, kind: str) -> None:
    only(name)
    content = JPEGS[kind]
    for length in {*range(0, len(content) - 2, 97), len(content) - 30, len(content) - 2}:
        with pytest.raises(DecodeError):
            decode_picture(content[:length])


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", ["PNG", "PNG, palette", "WebP", "BMP", "TIFF", "PPM"])
def test_other_pictures_that_are_cut_off_are_refused(only: Restrict, name: str, kind: str) -> None:
    only(name)
    content = PICTURES[kind][0]
    for length in {*range(0, len(content) - 60, len(content) // 20), len(content) // 2}:
        with pytest.raises(DecodeError):
            decode_picture(content[:length])


def claimed(height: int, width: int) -> dict[str, bytes]:
    """Small files that claim to hold a picture of this size."""
    jpeg = bytearray(JPEGS["usual"])
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in (header, b"IDAT" + zlib.compress(b"\0" * 1000), b"IEND")
    )
    return {"JPEG": bytes(jpeg), "PNG": b"\x89PNG\r\n\x1a\n" + chunks}


@pytest.mark.parametrize("name", ["simplejpeg", "both", "Pillow"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_what_claims_to_be_huge_is_refused_by_its_header(only: Restrict, name: str, kind: str) -> None:
    only(name)
    content = claimed(60_000, 65_000)[kind]
    for function in (decode_picture, image_size):
        with pytest.raises(DecodeError, match="60000 x 65000|exceeds limit"):
            function(content)
    side = int(MOST_PIXELS**0.5)
    with pytest.raises(DecodeError, match=f"{side + 1} x {side}, and a picture has from 1 to {MOST_PIXELS} pixels"):
        image_size(claimed(side + 1, side)[kind])
    assert image_size(claimed(side, side)[kind]) == (side, side)


NONSENSE = {
    "nothing": (b"", "0 bytes, so it is empty"),
    "text": (b"once upon a time", "16 bytes, which begin with 6f 6e 63 65"),
    "a JPEG's first bytes": (b"\xff\xd8\xff", "3 bytes, which begin with ff d8 ff"),
    "EPS": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "none of JPEG, PNG|does not know"),
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("kind", NONSENSE)
def test_what_is_no_picture_is_refused(only: Restrict, name: str, kind: str) -> None:
    only(name)
    content, text = NONSENSE[kind]
    for function in (decode_picture, image_size):
        with pytest.raises(DecodeError, match=text) as caught:
            function(content)
        assert "0x" not in str(caught.value)


@pytest.mark.parametrize("name", OTHERS)
def test_pixels_that_are_no_bytes_are_refused(only: Restrict, name: str) -> None:
    only(name)
    with pytest.raises(DecodeError, match="its pixels"):
        decode_picture(encoded(Image.fromarray(PHOTO[..., 0].astype(np.float32)), "TIFF"))
    deep = Image.fromarray(PHOTO[..., 0].astype(np.int32) * 2**20)
    with pytest.raises(DecodeError):
        decode_picture(encoded(deep, "TIFF"))


def test_a_missing_library_is_not_taken_for_a_broken_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_library", lambda name: None)
    for content in (JPEGS["usual"], PICTURES["PNG"][0]):
        for function in (decode_picture, image_size):
            with pytest.raises(ModuleNotFoundError, match="pip install"):
                function(content)
    simplejpeg: Any = import_module("simplejpeg")
    monkeypatch.setattr(decoding, "_library", lambda name: simplejpeg if name == "simplejpeg" else None)
    assert decode_picture(JPEGS["usual"]).shape == (61, 83, 3)
    with pytest.raises(ModuleNotFoundError):
        decode_picture(PICTURES["PNG"][0])


def test_nothing_is_written_to_the_content() -> None:
    for content in (*JPEGS.values(), *(content for content, _ in PICTURES.values())):
        given = array(content).copy()
        decode_picture(given)
        assert given.tobytes() == content
