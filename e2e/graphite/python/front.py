"""Runs graphite-web on a free port of loopback and prints it.

usage: front.py DIRECTORY LOCAL_SETTINGS : what graphite-web keeps goes into DIRECTORY.
"""
import inspect
import os
import sys
import types
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

directory = sys.argv[1]

# graphite-web 1.1.10 asks for what Python 3.11 no longer has.
if not hasattr(inspect, "getargspec"):
    inspect.getargspec = lambda f: inspect.getfullargspec(f)[:4]
if not hasattr(inspect, "formatargspec"):
    inspect.formatargspec = lambda *spec: "()"

# It imports a library for charts, which no request here draws.
try:
    import cairocffi  # noqa: F401
except (ImportError, OSError):
    sys.modules["cairocffi"] = types.ModuleType("cairocffi")

settings = types.ModuleType("front_settings")
with open(sys.argv[2]) as local:
    exec(local.read(), settings.__dict__)
settings.SECRET_KEY = "of a test"
settings.STORAGE_DIR = directory
settings.LOG_DIR = directory
settings.CONF_DIR = directory
settings.INDEX_FILE = os.path.join(directory, "index")
settings.STANDARD_DIRS = getattr(settings, "FILES", [])  # directories of Whisper's files
if settings.STANDARD_DIRS:
    settings.WHISPER_DIR = settings.STANDARD_DIRS[0]
settings.ALLOWED_HOSTS = ["*"]
settings.TIME_ZONE = "UTC"
sys.modules["front_settings"] = settings
os.environ["GRAPHITE_SETTINGS_MODULE"] = "front_settings"
os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


class Handler(WSGIRequestHandler):
    def log_message(self, *args):
        pass


from graphite.wsgi import application  # noqa: E402
from graphite.render import attime  # noqa: E402
from django.core.management import call_command  # noqa: E402

now = getattr(settings, "NOW", 0)  # the seconds that times are relative to, if the clock does not count
if now:
    class Clock(attime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(now, tz)
    attime.datetime = Clock

call_command("migrate", run_syncdb=True, verbosity=0)
server = make_server("127.0.0.1", 0, application, Server, Handler)
print(server.server_port, flush=True)
server.serve_forever()
