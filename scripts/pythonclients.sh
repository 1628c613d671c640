#!/bin/sh
# Makes the Python clients that Varve is tested with available, as pip.sh does.
set -eu

exec "$(dirname "$0")/pip.sh" pythonclients 'opentsdb-py==0.6.0 potsdb==1.0.3 python-kairosdb==0.2.1 requests'
