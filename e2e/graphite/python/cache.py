"""Writes Whisper's files with carbon: listens on a free port of loopback and prints it, takes
the lines of one connection, writes them, registers the series with tags, and ends.

usage: cache.py LIBRARY DIRECTORY GRAPHITE : storage-schemas.conf and storage-aggregation.conf
are in DIRECTORY, the files go to DIRECTORY/files. GRAPHITE is the address of a graphite-web.
"""
import os
import sys

library, directory, graphite = sys.argv[1:]
sys.path[:0] = [library, os.path.join(library, "opt", "graphite", "lib")]

from carbon import state  # noqa: E402
from carbon.conf import settings  # noqa: E402

settings.update({
    "CONF_DIR": directory,
    "LOCAL_DATA_DIR": os.path.join(directory, "files"),
    "GRAPHITE_URL": graphite,
    "MAX_CREATES_PER_MINUTE": float("inf"),
    "MAX_UPDATES_PER_SECOND": float("inf"),
    "MAX_CACHE_SIZE": float("inf"),
    "TAG_UPDATE_INTERVAL": 1 << 60,
    "program": "carbon-cache",
    "instance": "a",
})

import whisper  # noqa: E402


def update_many(path, points):
    """Writes points as if each had arrived when it was current."""
    with open(path, "r+b") as f:
        for at, value in sorted(points):
            whisper.file_update(f, value, int(at), int(at))


whisper.update_many = update_many

from carbon.database import WhisperDatabase  # noqa: E402

state.database = WhisperDatabase(settings)

from carbon import service, writer  # noqa: E402
from carbon.protocols import MetricLineReceiver  # noqa: E402
from twisted.application.service import MultiService  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.protocol import ServerFactory  # noqa: E402

service.setupPipeline(["write"], MultiService(), settings)


class Receiver(MetricLineReceiver):
    def connectionLost(self, reason):
        MetricLineReceiver.connectionLost(self, reason)
        writer.writeCachedDataPoints()
        writer.writeTags()
        reactor.stop()


factory = ServerFactory()
factory.protocol = Receiver
port = reactor.listenTCP(0, factory, interface="127.0.0.1")
print(port.getHost().port, flush=True)
reactor.run()
