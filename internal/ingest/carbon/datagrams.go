package carbon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/ingest"
	"varve/internal/ingest/lines"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/work"
)

// A DatagramServer accepts text lines in UDP datagrams. One goroutine receives, one stores. A
// sender never learns what happened to a datagram, so each one that is not stored is counted.
type DatagramServer struct {
	proto     *lines.Protocol
	datagrams prometheus.Counter
	overflow  prometheus.Counter

	mu struct {
		sync.Mutex
		conn     *net.UDPConn // nil before Serve
		cancel   context.CancelFunc
		stopping bool
	}
	served chan struct{}              // closed when Serve has returned, or will not be called
	others map[string]*DatagramServer // by tenant; complete before Serve
}

// HandOver lets s hand the datagrams of a tenant's senders to the server of that tenant,
// which then stores them, and counts what it refuses. Call it before Serve.
func (s *DatagramServer) HandOver(tenant string, to *DatagramServer) { s.others[tenant] = to }

// NewDatagramServer returns a server for datagrams of text lines. cfg must be valid. Serve may be
// called once.
func NewDatagramServer(p *ingest.Pipeline, cfg Config, o Options) *DatagramServer {
	set := collectors.Named("varve_carbon_udp_")
	defer set.MustRegister(o.Registerer)
	return &DatagramServer{
		proto:     protocolOf("carbon_udp", p, cfg, o),
		datagrams: set.Counter("datagrams_total", "Datagrams received."),
		overflow:  set.Counter("kernel_dropped_total", "Datagrams that the operating system dropped because they came faster than they were received. Known on Linux only, and once a further datagram has come."),
		served:    make(chan struct{}),
		others:    map[string]*DatagramServer{},
	}
}

// receiveBuffer is what the operating system is asked to hold, in bytes. It may give less.
const receiveBuffer = 4 << 20

// Serve takes datagrams from c until Shutdown, or until ctx ends, and closes c. It returns
// nil after Shutdown, the error of ctx if that has ended, and otherwise why receiving failed.
// admit returns the principal for the datagrams of an address, or why they are refused. Without
// admit, all datagrams have the principal of ctx.
func (s *DatagramServer) Serve(ctx context.Context, c *net.UDPConn, admit func(netip.Addr) (principal.Principal, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.Close()
	if !s.enter(c, cancel) {
		return nil
	}
	defer close(s.served)
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
	defer stop()
	_ = c.SetReadBuffer(receiveBuffer) // with a smaller buffer a burst loses more, which is counted
	if err := countOverflow(c); err != nil {
		s.proto.Logger.Info("carbon_udp: datagrams that the operating system drops cannot be counted on this machine", "error", err)
	}

	var storing sync.WaitGroup
	desks := s.openDesks(ctx, &storing)
	err := s.receive(ctx, c, desks, admit)
	for _, d := range desks {
		d.in.end()
	}
	storing.Wait()
	switch {
	case s.isStopping():
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// A desk receives the datagrams of one tenant. Each desk has its own inbox and goroutine, so that
// no tenant waits because of the limits of another.
type desk struct {
	*DatagramServer
	in *inbox
}

// ownDesk is the key of the server's own desk, for datagrams of senders that have no tenant, or
// whose tenant has no desk. No tenant has this name.
const ownDesk = ""

func (s *DatagramServer) openDesks(ctx context.Context, storing *sync.WaitGroup) map[string]desk {
	desks := map[string]desk{ownDesk: {s, newInbox(int(s.proto.ReadBuffer))}}
	for tenant, other := range s.others {
		desks[tenant] = desk{other, newInbox(int(other.proto.ReadBuffer))}
	}
	for _, d := range desks {
		storing.Go(func() { d.store(ctx, d.in) })
	}
	return desks
}

// take accepts a datagram, or counts it as dropped.
func (d desk) take(data []byte, from netip.AddrPort, by principal.Principal) {
	d.proto.Received.Add(float64(len(data)))
	if len(data) > 0 && !d.in.put(data, from, by) {
		d.proto.Pipeline.Reject(d.proto.Counts, from.String(), faultFull, data, countLines(data))
	}
}

// enter reports whether Serve may begin.
func (s *DatagramServer) enter(c *net.UDPConn, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping {
		return false
	}
	s.mu.conn, s.mu.cancel = c, cancel
	return true
}

func (s *DatagramServer) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopping
}

// drainFor is how long datagrams are received after Shutdown: those that the operating system
// already holds.
const drainFor = 50 * time.Millisecond

// Shutdown stops receiving, stores what has arrived and returns once Serve has nothing
// left to do. If ctx ends first, what is left is counted as unavailable and ctx's error
// is returned.
func (s *DatagramServer) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	conn, cancel := s.mu.conn, s.mu.cancel
	s.mu.stopping = true
	s.mu.Unlock()
	if conn == nil {
		return nil
	}
	conn.SetReadDeadline(time.Now().Add(drainFor))
	select {
	case <-s.served:
		return nil
	case <-ctx.Done():
	}
	cancel()
	<-s.served
	return fmt.Errorf("stop the carbon_udp listener: %w", ctx.Err())
}

// receivePause is how long receiving pauses after a failure that may pass.
const receivePause = 50 * time.Millisecond

// receive puts datagrams on the desks until the deadline of c.
func (s *DatagramServer) receive(ctx context.Context, c *net.UDPConn, desks map[string]desk, admit func(netip.Addr) (principal.Principal, error)) error {
	by := principal.Of(ctx)
	data, oob := make([]byte, maxDatagram), make([]byte, overflowBytes)
	var dropped uint32
	for {
		n, said, _, from, err := c.ReadMsgUDPAddrPort(data, oob)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			s.proto.Logger.Warn("carbon_udp: receiving failed, trying again", "address", c.LocalAddr(), "error", err)
			_ = work.Pause(ctx, receivePause) // the deadline of c ends the loop
			continue
		}
		if total, ok := overflowIn(oob[:said]); ok {
			s.overflow.Add(float64(total - dropped)) // which wraps around as the total does
			dropped = total
		}
		s.accept(data[:n], from, by, desks, admit)
		s.datagrams.Inc() // last: a datagram that is counted waits for the store, or was refused
	}
}

// accept puts a datagram on the desk of its sender, or refuses it. Without admit, by is the sender.
func (s *DatagramServer) accept(data []byte, from netip.AddrPort, by principal.Principal, desks map[string]desk, admit func(netip.Addr) (principal.Principal, error)) {
	if admit != nil {
		var err error
		if by, err = admit(from.Addr()); err != nil {
			s.proto.Received.Add(float64(len(data)))
			s.proto.Pipeline.Reject(s.proto.Counts, from.String(), ingest.Faultf(ingest.Forbidden, "%v", err), data, countLines(data))
			return
		}
	}
	d, ok := desks[by.Tenant]
	if !ok {
		d = desks[ownDesk]
	}
	d.take(data, from, by)
}

var faultFull = ingest.Faultf(ingest.Unavailable, "datagrams come faster than the store takes their lines, so this one was dropped; TCP makes senders wait instead")

// countLines counts lines, the last of which may lack its line feed.
func countLines(data []byte) int {
	n := bytes.Count(data, []byte{'\n'})
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

// store stores blocks until the end of the inbox.
func (s *DatagramServer) store(ctx context.Context, in *inbox) {
	p := newParser(s.proto, "")
	for b := in.take(); b != nil; b = in.take() {
		// A bug in Varve costs this block alone.
		err := work.Do("store datagrams of carbon", func() error { return s.offer(principal.With(ctx, b.by), p, b) })
		if err != nil {
			s.refuse(err, b)
			p = newParser(s.proto, "")
		}
		in.recycle(b)
	}
}

// offer offers a block to the store until the store accepts it.
func (s *DatagramServer) offer(ctx context.Context, p *parser, b *block) error {
	most := len(b.datagrams) + bytes.Count(b.data, []byte{'\n'})
	return s.proto.Pipeline.Offer(ctx, s.proto.RetryFor, func() error {
		_, err := p.w.Ingest(ctx, most, func() error { return p.parseDatagrams(b) })
		return err
	})
}

// refuse counts the lines of a block that was not stored, or not all of it.
func (s *DatagramServer) refuse(err error, b *block) {
	if part := ingest.PartOf(err); part != nil { // it is not known which datagrams they are from
		s.proto.Pipeline.Reject(s.proto.Counts, "", ingest.Faultf(ingest.Unavailable, "%v", err), nil, part.Refused)
		return
	}
	reason := ingest.Unavailable
	if _, ok := errors.AsType[*store.InputError](err); ok {
		reason = ingest.Refused
	}
	f := ingest.Faultf(reason, "%v", err)
	for data, d := range b.all {
		s.proto.Pipeline.Reject(s.proto.Counts, d.from.String(), f, data, countLines(data))
	}
	s.proto.Logger.Error("carbon_udp: datagrams not stored", "datagrams", len(b.datagrams), "error", err)
}

func (b *block) all(yield func(data []byte, d datagram) bool) {
	begin := 0
	for _, d := range b.datagrams {
		if !yield(b.data[begin:d.end], d) {
			return
		}
		begin = d.end
	}
}

// parseDatagrams adds the lines of a block to the batch.
func (l *parser) parseDatagrams(b *block) error {
	var from netip.AddrPort
	for data, d := range b.all {
		if d.from != from {
			from = d.from
			l.w.SetSender(from.String(), d.sender)
		}
		if err := l.parse(data); err != nil {
			return err
		}
	}
	return nil
}
