// Package stream accepts connections within a limit and ends them in order, whatever
// is spoken on them. A [Listener] bounds the open connections: at the limit, a new one
// replaces another that is waiting for its client. A [Server] runs a [Handler] on each
// connection of a listener; net/http brings a server of its own and uses the Listener
// alone.
package stream
