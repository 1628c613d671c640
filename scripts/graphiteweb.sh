#!/bin/sh
# Makes graphite-web available, which tests put in front of Varve, as pip.sh does.
# Exit status 3 also means a Python 3 that it does not run on.
set -eu

if command -v python3 >/dev/null && ! python3 -c 'import sys; sys.exit(not (3, 6) <= sys.version_info < (3, 12))'; then
	echo "graphite-web 1.1.10 needs Python 3.6 to 3.11; python3 is $(python3 --version)" >&2
	exit 3
fi
# Its setup would put the modules below opt/graphite, with some versions of setuptools.
GRAPHITE_NO_PREFIX=1
export GRAPHITE_NO_PREFIX
exec "$(dirname "$0")/pip.sh" graphiteweb 'graphite-web==1.1.10 Django==3.0.14 django-tagging==0.4.3'
