// Package server connects the network to the front ends: streams, routing, HTTP
// connections, health, the server's own metrics and the order in which everything
// stops. It knows front ends as lists of routes, each of which states the access
// that it needs, and as handlers of streams. A stream has a name and an address;
// Config.streams lists them. The context of each request and connection says
// on whose behalf it is, see package principal.
//
// # Connections
//
// KairosDB's clients set the rules. A client may name a path with or without a trailing slash and
// escape a slash inside a name. The end of a kept-alive connection is announced with Connection:
// close, since a client that is not told loses its next push. Below /api/, the answer to a path
// without a route has no body, because the Java client leaks a connection with each error that has
// one. A connection that stalls within a request is cut; a slow one is not.
//
// Package fastpath answers plain HTTP/1.1 requests, with or without TLS. At the first request that
// is not plain, the connection passes to net/http, which also serves all HTTP/2 connections.
//
// # Stopping
//
//	t = 0                CloseGrace           shutdown_timeout/2     shutdown_timeout
//	|--------------------|--------------------|----------------------|
//	  no new connections   idle connections     requests are cut;      exit
//	  answers say close    closed; requests     the store closes
//	  telnet drains        in flight go on
//
// Each step ends early when nothing is left to wait for.
package server
