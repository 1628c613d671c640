// Runs npm kairosdb against a server: kairosdb.js HOST PORT. It prints what each
// callback got. Its length of a body counts characters, so what is not ASCII is
// cut off.
const kairosdb = require('kairosdb');

const client = kairosdb.init(process.argv[2], process.argv[3]);
const plain = [{name: 'node.m', timestamp: 1700000000000, value: 321, tags: {host: 'server'}}];
const cut = [{name: 'node.é', timestamp: 1700000000000, value: 321, tags: {host: 'server'}}];
const query = {start_absolute: 1, metrics: [{name: 'node.m', aggregators: [{name: 'sum', sampling: {value: 10, unit: 'minutes'}}]}]};

const calls = [
  ['version', undefined], ['datapoints', plain], ['query', query], ['datapoints', cut], ['query', query],
];
const got = [];
function next() {
  const call = calls.shift();
  if (!call) {
    console.log(JSON.stringify(got));
    process.exit(0);
  }
  const [name, argument] = call;
  const done = (error, answer) => {
    got.push(error ? String(error) : answer);
    next();
  };
  argument === undefined ? client[name](done) : client[name](argument, done);
}
next();
