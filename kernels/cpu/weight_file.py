"""Tensors in one file that the next process maps. Decides the layout, and whether a file is what was written.

    MAGIC, length and CRC of the header | header: JSON | zeros up to HUGE_PAGE | tensors, each on a cache line

The header has of each tensor its dtype, shape, place and checksum, so a file that was cut off or damaged, or whose
pages are not in their order, is found out when it is opened. The checksum is the CRC of each page's sum of words: that
reads the file at the speed of the memory, which a first step would do anyway. A CRC of all bytes takes five times as
long.
"""

import contextlib
import ctypes
import json
import mmap
import os
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ramet.kernels.cpu.memory import HUGE_PAGE, LINE, huge_empty

MAGIC = b"ramet w2"
START = struct.Struct("<8sQI")
PAGE_BYTES, WORD_BYTES = 4096, 8  # of a checksum
WRITTEN_BYTES = 1 << 24  # at a time, from huge page to huge page: so large writes are kept on huge pages
Facts = dict[str, Any]  # what is kept beside the tensors, as JSON has it


class Damaged(Exception):
    """The file is not what was written; the message says why."""


def write(path: Path, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Raises OSError."""
    plain = {name: tensor.detach().contiguous().view(-1).view(torch.uint8) for name, tensor in tensors.items()}
    entries: dict[str, dict[str, Any]] = {}
    size = 0
    for name, data in plain.items():
        dtype, shape = str(tensors[name].dtype).removeprefix("torch."), list(tensors[name].shape)
        entries[name] = {"dtype": dtype, "shape": shape, "at": size, "bytes": len(data), "crc": _checksum(data)}
        size += -(-len(data) // LINE) * LINE
    header = json.dumps({"facts": facts, "tensors": entries, "size": size}).encode()
    first = -(-(START.size + len(header)) // HUGE_PAGE) * HUGE_PAGE
    with path.open("xb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, first + size)  # a disk that is full says so before it is
        file.write(START.pack(MAGIC, len(header), zlib.crc32(header)) + header)
        file.seek(first)
        for chunk in _chunks((entries[name]["at"], data) for name, data in plain.items()):
            whole: Any = memoryview(chunk.numpy())  # type: ignore[arg-type]
            while whole:
                whole = whole[file.write(whole) :]


def _chunks(placed: Iterable[tuple[int, Tensor]]) -> Iterator[Tensor]:
    """The tensors behind one another, with zeros in between: WRITTEN_BYTES at a time, good until the next."""
    chunk, begin, end = torch.zeros(WRITTEN_BYTES, dtype=torch.uint8), 0, 0
    for at, data in placed:
        end = at + len(data)
        while at < end:
            if at >= begin + WRITTEN_BYTES:
                yield chunk
                chunk.zero_()
                begin += WRITTEN_BYTES
            num = min(end, begin + WRITTEN_BYTES) - at
            chunk[at - begin : at - begin + num] = data[len(data) - (end - at) :][:num]
            at += num
    yield chunk[: -(-(end - begin) // LINE) * LINE]


def read(path: Path) -> tuple[dict[str, Tensor], Facts]:
    """The tensors, which are not to be written to, and the facts. Raises Damaged and OSError.

    They are mapped, so processes share them, where the system maps the file by huge pages; else copied to huge pages.
    """
    with path.open("rb", buffering=0) as file:
        header, first = _header(file)
        size = header["size"]
        if os.fstat(file.fileno()).st_size != first + size:
            raise Damaged(f"it has {os.fstat(file.fileno()).st_size} bytes instead of {first + size}")
        whole = mapped(file.fileno(), first + size)[first:]
        found = _checked(whole, header)
        if not is_on_huge_pages(whole) and gives_huge_pages():
            copy = huge_empty((size,), torch.uint8)
            file.seek(first)
            _read_into(file, copy)
            found = _tensors(copy, header)
        return found, header["facts"]


def _header(file: Any) -> tuple[dict[str, Any], int]:
    """It, and where the tensors begin."""
    start = file.read(START.size)
    if len(start) < START.size or not start.startswith(MAGIC):
        raise Damaged("it does not begin as such a file does")
    _, length, crc = START.unpack(start)
    header = file.read(length) if length < os.fstat(file.fileno()).st_size else b""
    if len(header) != length or zlib.crc32(header) != crc:
        raise Damaged("its header is not as it was written")
    return json.loads(header), -(-(START.size + length) // HUGE_PAGE) * HUGE_PAGE


def mapped(descriptor: int, size: int) -> Tensor:
    """[size] uint8: the file's pages, read-only."""
    memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a file system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it cannot be written to
        return torch.frombuffer(memory, dtype=torch.uint8)


def _checked(whole: Tensor, header: Mapping[str, Any]) -> dict[str, Tensor]:
    for name, entry in header["tensors"].items():
        if _checksum(whole[entry["at"] : entry["at"] + entry["bytes"]]) != entry["crc"]:
            raise Damaged(f"{name} is not as it was written")
    return _tensors(whole, header)


def _tensors(whole: Tensor, header: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: whole[entry["at"] : entry["at"] + entry["bytes"]]
        .view(getattr(torch, entry["dtype"]))
        .view(entry["shape"])
        for name, entry in header["tensors"].items()
    }


def _checksum(data: Tensor) -> int:
    """Data [n] uint8 begins on a cache line."""
    whole = len(data) // PAGE_BYTES * PAGE_BYTES
    sums = data[:whole].view(torch.int64).view(-1, PAGE_BYTES // WORD_BYTES).sum(1)  # [pages] int64, each modulo 2^64
    return zlib.crc32(data[whole:].numpy(), zlib.crc32(sums.numpy()))  # type: ignore[arg-type]


def _read_into(file: Any, target: Tensor) -> None:
    view = memoryview((ctypes.c_char * target.nbytes).from_address(target.data_ptr())).cast("B")
    while view:
        count = file.readinto(view)
        if not count:
            raise Damaged("it became shorter while it was read")
        view = view[count:]


def is_on_huge_pages(tensor: Tensor, smaps: Path = Path("/proc/self/smaps")) -> bool:
    """At least half of what is mapped where it lies, once it has been read."""
    address, inside, sizes = tensor.data_ptr(), False, dict[str, int]()
    try:
        lines = smaps.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        name, _, value = line.partition(":")
        if "-" in name.partition(" ")[0]:
            start, end = (int(bound, 16) for bound in line.partition(" ")[0].split("-"))
            inside = start <= address < end
        elif inside and value.endswith("kB"):
            sizes[name] = int(value.split()[0])
    huge = sum(sizes.get(kind, 0) for kind in ("AnonHugePages", "FilePmdMapped", "ShmemPmdMapped"))
    return huge > 0 and 2 * huge >= sizes["Rss"]


def gives_huge_pages(setting: Path = Path("/sys/kernel/mm/transparent_hugepage/enabled")) -> bool:
    """To a process that asks for some."""
    try:
        return "[never]" not in setting.read_text()
    except OSError:
        return False
