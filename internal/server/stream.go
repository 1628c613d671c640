package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"

	"varve/internal/server/fastpath"
	"varve/internal/stream"
)

// A listening stream is a protocol and the address at which it is spoken.
type listening struct {
	name     string       // in log lines, errors and metrics
	addr     string       // "" turns it off
	can      string       // what anyone who reaches it can do
	optional bool         // the server runs without it if the address is taken
	listener net.Listener // nil until Listen, and if it is off

	datagrams bool         // it is spoken over UDP
	packets   *net.UDPConn // then in place of listener
}

// isOpen reports whether Listen has opened st.
func (st *listening) isOpen() bool { return st.listener != nil || st.packets != nil }

// local is the address of a stream that is open.
func (st *listening) local() net.Addr {
	if st.datagrams {
		return st.packets.LocalAddr()
	}
	return st.listener.Addr()
}

// shown is the address of a stream that is open, for people: as the setting has it, but with the
// port that the system chose for port 0. For 0.0.0.0, local would show [::].
func (st *listening) shown() string {
	host, _, err := net.SplitHostPort(st.addr)
	if err != nil {
		return st.local().String()
	}
	return net.JoinHostPort(host, strconv.Itoa(portOf(st.local())))
}

// close closes a stream that is open.
func (st *listening) close() error {
	if st.datagrams {
		return st.packets.Close()
	}
	return st.listener.Close()
}

// open listens at the address. Its error names the address as the setting does: for localhost
// or [::], package net would name the address that it has looked up.
func (st *listening) open() (err error) {
	if st.datagrams {
		var c net.PacketConn
		if c, err = net.ListenPacket("udp", st.addr); err == nil {
			st.packets = c.(*net.UDPConn)
		}
	} else {
		var l net.Listener
		if l, err = net.Listen("tcp", st.addr); err == nil {
			st.listener = l
		}
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		failed.Addr = setAddr{failed.Net, st.addr}
	}
	return err
}

// A setAddr is an address as the settings have it.
type setAddr struct{ network, text string }

func (a setAddr) Network() string { return a.network }
func (a setAddr) String() string  { return a.text }

// key is the setting that holds the address, without its section.
func (st *listening) key() string { return st.name + "_addr" }

func onLoopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UDPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

func portOf(a net.Addr) int {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.Port
	case *net.UDPAddr:
		return a.Port
	}
	return 0
}

// wants reports whether a stream is on and, as far as is known yet, has a handler.
func (s *Server) wants(st *listening) bool {
	return st.addr != "" && (s.webOf(st.name) != nil || s.opening != nil || s.front.Streams[st.name] != nil || s.front.Datagrams[st.name] != nil)
}

// A web is a listener of HTTP, with the routes that answer on it.
type web struct {
	http     *http.Server
	fast     *fastpath.Server
	requests context.Context // of all requests
	router   *router
	listener *httpListener // nil until Listen, and if it is off
	limit    int           // of connections
	log      *slog.Logger
}

// webOf returns what answers on an HTTP stream, nil for another stream.
func (s *Server) webOf(name string) *web {
	return map[string]*web{"http": s.api, "pprof": s.pprof}[name]
}

func (s *Server) newWeb(requests context.Context, name string, limit int, m *metrics) *web {
	rt := &router{
		stream:   name,
		keeper:   s.keeper,
		audit:    &s.audit,
		guard:    guard{origins: &s.origins},
		log:      s.log,
		metrics:  m,
		stall:    s.config.StallTimeout,
		draining: s.draining.Load,
		crowd:    crowdOf(limit),
	}
	if s.keeper != nil {
		rt.proxyHeader = http.CanonicalHeaderKey(s.keeper.ProxyHeader())
	}
	return &web{router: rt, limit: limit, log: s.log, requests: requests, fast: fastpath.New(fastpath.Options{
		Handler:      rt,
		Log:          s.log,
		FirstTimeout: s.config.ReadHeaderTimeout,
		IdleTimeout:  s.config.IdleTimeout,
	}), http: &http.Server{
		Handler:           rt,
		ReadHeaderTimeout: s.config.ReadHeaderTimeout,
		IdleTimeout:       s.config.IdleTimeout,
		MaxHeaderBytes:    2 * int(maxHeader), // httpConn.Read and isLarge are stricter, and count
		ErrorLog:          slog.NewLogLogger(httpLog{s.log.Handler()}, slog.LevelWarn),
		ConnState:         rt.crowd.note,
		ConnContext:       withConn,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: http2Streams, MaxReadFrameSize: http2Frame, WriteByteTimeout: s.config.StallTimeout},
		BaseContext:       func(net.Listener) context.Context { return requests },

		DisableGeneralOptionsHandler: true, // it would answer OPTIONS * past endsTwice
	}}
}

// http2Streams is how many requests of one HTTP/2 connection are answered at once.
const http2Streams = 32

// http2Frame is the size of the largest HTTP/2 frame that is accepted, the smallest limit that the
// protocol allows. A frame is read as a whole before a handler gets any of it. A large one would
// take that much memory, and count as a whole against the client's credit: see [stream.Pace].
const http2Frame = 16 << 10

// bind makes w answer on l.
func (w *web) bind(l net.Listener, name string) net.Listener {
	w.router.guard.loopback = onLoopback(l.Addr())
	w.listener = newHTTPListener(l, name, w.limit, w.log, w.router.metrics)
	w.listener.prepare = w.serveFirst
	if d, ok := l.(*stream.Door); ok && d.TLS != nil {
		w.listener.prepare = w.serveTLS
		w.listener.pace = w.listener.newPace()
	}
	return w.listener
}

// serve answers on the listener until it is closed.
func (w *web) serve() error {
	var feeding sync.WaitGroup
	feeding.Go(w.listener.feed)
	defer feeding.Wait()
	defer w.listener.Close() // before that
	return w.http.Serve(&w.listener.ready)
}

// serveTLS performs the handshake. net/http speaks HTTP/2 only on connections that are *tls.Conn.
func (w *web) serveTLS(ctx context.Context, c *stream.Conn) net.Conn {
	protocol, ok := w.listener.shake(ctx, c, w.router.crowd)
	switch {
	case !ok:
		return nil
	case protocol == http2:
		boundBacklog(c)
		c.Meter(w.listener.pace)
		return c.TLS()
	}
	return w.serveFirst(ctx, c)
}

// serveFirst answers the requests of an HTTP/1 connection until one is for net/http.
func (w *web) serveFirst(_ context.Context, c *stream.Conn) net.Conn {
	hc := w.listener.connOf(c)
	unused, handOver := w.fast.Serve(withConn(w.requests, hc), c)
	if !handOver {
		return nil
	}
	hc.unused = unused
	hc.watch = w.fast.Watch
	return hc
}

// shutdown closes connections without a request, and the others once theirs is answered. It returns
// an error if ctx ends first.
func (w *web) shutdown(ctx context.Context) error {
	fast := make(chan error, 1)
	go func() { fast <- w.fast.Shutdown(ctx) }()
	err := w.http.Shutdown(ctx)
	return cmp.Or(<-fast, err)
}

// close closes all connections.
func (w *web) close() {
	w.fast.Close()
	w.http.Close()
}
