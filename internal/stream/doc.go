// Package stream accepts connections up to a limit and shuts them down gracefully,
// whatever their protocol. A [Listener] bounds the open connections: at the limit, a new
// one replaces another that is waiting for its client. A [Server] runs a [Handler] on
// each connection of a listener; net/http has its own server and uses only the Listener.
package stream
