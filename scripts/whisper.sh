#!/bin/sh
# Makes Graphite's own whisper available, which files are tried with, as pip.sh does.
set -eu

exec "$(dirname "$0")/pip.sh" whisper 'whisper==1.1.10'
