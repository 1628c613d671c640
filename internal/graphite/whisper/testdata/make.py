# Makes the golden files of this directory with the original, whisper 1.1.10 of PyPI:
#
#	pip install whisper==1.1.10 && python make.py
#
# Each NAME.wsp has a NAME.json beside it: the points that whisper answers, by archive.
import json
import os
import random
import struct

import whisper

NOW = 1_700_000_000  # a multiple of no step but 1, 10 and 20


def newest(path, archive):
    """The newest time in an archive."""
    with open(path, "rb") as f:
        f.seek(archive["offset"])
        slots = f.read(archive["size"])
    return max(t for t, _ in struct.iter_unpack("!Ld", slots))


def answers(path):
    """What whisper answers of each archive at the time of its newest point."""
    told = []
    for archive in whisper.info(path)["archives"]:
        now = newest(path, archive)
        if now == 0:
            told.append([])
            continue
        (start, end, step), values = whisper.fetch(
            path, now - archive["retention"], now, now=now, archiveToSelect=archive["secondsPerPoint"])
        told.append([[t, v] for t, v in zip(range(start, end, step), values) if v is not None])
    return told


def make(name, archives, method, factor, sent, now=NOW):
    path = name + ".wsp"
    if os.path.exists(path):
        os.remove(path)
    whisper.create(path, archives, factor, aggregationMethod=method)
    for t, v in sorted(sent):
        whisper.update(path, v, t, now=max(t, 1))
    info = whisper.info(path)
    with open(name + ".json", "w") as f:
        json.dump({
            "now": now, "method": info["aggregationMethod"], "xff": factor,
            "archives": archives, "sent": sorted(sent), "points": answers(path),
        }, f, separators=(",", ":"))
        f.write("\n")


random.seed(1)


def line(since, step, part=1.0):
    return [(t, random.randrange(1000) / 8) for t in range(NOW - since, NOW + 1, step) if random.random() < part]


THREE = [(10, 36), (60, 30), (300, 40)]
for method in ["average", "sum", "last", "max", "min", "avg_zero", "absmax", "absmin"]:
    make(method, THREE, method, 0.5, [(t, v - 60) for t, v in line(12000, 10, 0.8)])
make("one", [(60, 50)], "last", 0.0, line(7000, 60))
make("empty", THREE, "average", 0.1, [])
make("sparse", THREE, "average", 0.3, line(12000, 10, 0.05))
make("ended", THREE, "sum", 0.2, [(t, v) for t, v in line(12000, 10) if t < NOW - 5000], NOW - 5010)
make("late", THREE, "max", 0.0, line(12000, 7))
