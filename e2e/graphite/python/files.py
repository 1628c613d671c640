# Makes and reads Whisper's files with the original.
#
#	files.py make DIR NOW     makes files of several settings, as carbon does point by point
#	files.py read DIR NOW     prints what they answer, as JSON: settings and points by archive
import hashlib
import json
import os
import random
import sys

import whisper

ARCHIVES = [(10, 180), (60, 90), (300, 72)]


def tagged(series):
    digits = hashlib.sha256(series.encode("utf-8")).hexdigest()
    return os.path.join("_tagged", digits[:3], digits[3:6], series.replace(".", "_DOT_") + ".wsp")


def make(root, now):
    random.seed(3)
    files = {
        "servers/a/load.wsp": ("average", 0.5), "servers/a/count.wsp": ("sum", 0.0),
        "servers/b/max.wsp": ("max", 0.3), "servers/b/min.wsp": ("min", 0.0), "servers/b/last.wsp": ("last", 0.5),
        tagged("disk.used;dc=a.b;host=ü"): ("average", 0.5),
    }
    for file, settings in files.items():
        path = os.path.join(root, file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        whisper.create(path, ARCHIVES, settings[1], aggregationMethod=settings[0])
        for t in range(now - 22000, now + 1, 10):
            whisper.update(path, random.randrange(-500, 500) / 4, t, now=t)


def read(root, now):
    told = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            info = whisper.info(path)
            archives = []
            for a in info["archives"]:
                (start, end, step), values = whisper.fetch(path, now - a["retention"], now, now=now, archiveToSelect=a["secondsPerPoint"])
                archives.append([[t, v] for t, v in zip(range(start, end, step), values) if v is not None])
            told[os.path.relpath(path, root)] = {
                "method": info["aggregationMethod"], "xff": info["xFilesFactor"], "longest": info["maxRetention"],
                "archives": [[a["secondsPerPoint"], a["points"]] for a in info["archives"]], "points": archives,
            }
    json.dump(told, sys.stdout)


{"make": make, "read": read}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
