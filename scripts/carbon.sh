#!/bin/sh
# Makes carbon available, which writes Whisper's files for tests, as pip.sh does.
set -eu

# Its setup would put the modules below opt/graphite.
GRAPHITE_NO_PREFIX=1
export GRAPHITE_NO_PREFIX
exec "$(dirname "$0")/pip.sh" carbon 'carbon==1.1.10 whisper==1.1.10'
