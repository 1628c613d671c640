// Package hostile attacks a running server the way a broken or malicious client
// does: slow senders and readers, half requests, lengths that lie, small inputs
// that unfold to large ones, values at the ends of their ranges, web pages of
// other origins. It has tests only.
//
// Every attack runs against a server of its own, beside a bystander that writes
// one point and asks one question again and again. The attack has failed if
//
//   - the process lives, and no request ended in a panic;
//   - the bystander was served within a second each time;
//   - the memory of the process stayed within the bound of the attack;
//   - the process is at rest within 3 s of the attackers' leaving;
//   - everything that the bystander was told is stored can be read back.
//
// Half and slow requests, slow readers, every path with everything, and bombs are tried three
// times: on a server that asks nobody for a token, and on one that does, with a token and without.
// Half and slow requests and slow readers are also tried over TLS.
//
// Over Cassandra (-hostile.cassandra) there are attacks that need it: on a node that is away, and on
// partitions of many or long rows.
//
// Since others' waiting is measured, the attacks run only when -hostile.for says
// for how long, alone on the machine: make hostile.
package hostile
