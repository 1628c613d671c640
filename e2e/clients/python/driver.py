"""Runs one of the Python clients against a server: driver.py CLIENT HOST PORT."""
import importlib.util
import json
import os
import sys


def opentsdb_http(host, port):
    """opentsdb-py by HTTP; says how many points it believes to be stored."""
    from opentsdb import TSDBClient
    client = TSDBClient(host, port=port, protocol='HTTP', host_tag=False, check_tsdb_alive=False, send_metrics_batch_limit=7)
    for i in range(20):
        client.send('py.http', i, tag1='v', node='n1', timestamp=1700000000 + i)
    client.close()
    client.wait()
    print(json.dumps(client.statuses))


def opentsdb_telnet(host, port):
    """opentsdb-py by telnet."""
    from opentsdb import TSDBClient
    client = TSDBClient(host, port=port, protocol='TELNET', host_tag=False, check_tsdb_alive=False)
    for i in range(20):
        client.send('py.telnet', i, tag1='v', timestamp=1700000000 + i)
    client.close()
    client.wait()


def potsdb(host, port):
    """potsdb, which opens a connection first to see whether there is one."""
    import potsdb
    client = potsdb.Client(host, port=port, host_tag='n1')
    for i in range(20):
        client.log('py.potsdb', i + 0.5, tag1='v', timestamp=1700000000 + i)
    client.close()
    client.wait()


def kairosdb(host, port):
    """python-kairosdb. Its package does not import on today's Python, its module client does."""
    for directory in sys.path:
        path = os.path.join(directory, 'kairosdb', 'client.py')
        if os.path.exists(path):
            break
    spec = importlib.util.spec_from_file_location('kairosdb_client', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    client = module.KairosDBAPIClient('http://%s:%d/api/v1' % (host, port))
    query = {'start_absolute': 1, 'metrics': [{'name': 'py.m', 'group_by': [{'name': 'tag', 'tags': ['host']}],
                                              'aggregators': [{'name': 'avg', 'align_sampling': True, 'sampling': {'value': 30, 'unit': 'seconds'}}]}]}
    points = [{'name': 'py.m', 'timestamp': 1700000000000 + i, 'value': i, 'tags': {'host': 'é'}} for i in range(3)]
    # Each GET and DELETE carries a body, all on one connection.
    answers = [
        client.post('datapoints', data=points),
        client.get('version'),
        client.get('health/check'),
        client.get('metricnames'),
        client.get('tagnames'),
        client.get('tagvalues'),
        client.post('datapoints/query', data=query),
        client.delete('metric/py.m'),
        client.get('metricnames'),
        client.post('datapoints', data=points[:1]),
        client.post('datapoints', data=[{'name': ''}]),
    ]
    print(json.dumps(answers))


clients = {'opentsdb-http': opentsdb_http, 'opentsdb-telnet': opentsdb_telnet, 'potsdb': potsdb, 'kairosdb': kairosdb}
clients[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
