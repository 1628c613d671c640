package cql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/notify"
	"varve/internal/store"
	"varve/internal/work"
)

// Options are the dependencies of a session. All may be zero.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Observe    func(statement string) // called once for each statement and page, however often it is retried

	// Dial connects to a node. nil means that of net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// A Session is a connection to a cluster and one of its keyspaces. Its methods may be called by
// many goroutines at once, except Close, which must be called once, last.
type Session struct {
	config   Config
	options  Options
	log      *slog.Logger
	levels   levels
	limiters [kinds]*limiter
	pages    *limiter // of pages of long rows, by the most that they may have: see pageRoom
	hedging  *hedging
	metrics  *metrics
	now      func() time.Time
	texts    sync.Map // from *Statement to the text that is sent: see text
	packed   packedBatches
	roster   roster

	ctx        context.Context // ends at Close, under mu
	stop       context.CancelFunc
	background sync.WaitGroup
	closing    sync.WaitGroup // driver sessions that are being closed

	changed *notify.Notifier // announces changes of mu.state
	making  chan struct{}    // holds an item during MakeTables
	created chan struct{}    // has an item once this session has created its keyspace, which it must look for

	mu struct {
		sync.Mutex
		conn   *connection // nil without a connection
		state  State
		answer time.Time // last answer of any node
		told   time.Time // when the missing connection was last logged
	}
}

// connection is one session of the driver.
type connection struct {
	driver   *gocql.Session
	dialer   *dialer
	end      context.CancelFunc // makes its dials and writes fail
	hosts    *hosts
	keyspace bool // the keyspace existed when it was opened
	version  string
}

// State is the state of a session.
type State struct {
	Connected bool      // a node answers
	Keyspace  bool      // the keyspace exists; meaningful once connected
	Since     time.Time // when Connected last changed
	Reason    string    // why the session is not connected
	Nodes     int       // number of connected nodes
	Silent    int       // how many of these have stopped answering
	Version   string    // release of a node, for example 5.0.8
}

// Open starts a session. It returns at once, and the session tries to connect to the cluster
// until Close. An error means that the settings are invalid.
func Open(config Config, o Options) (*Session, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	s := &Session{config: config, options: o, log: o.Logger, now: time.Now, changed: notify.New(), created: make(chan struct{}, 1), making: make(chan struct{}, 1)}
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
	if s.options.Dial == nil {
		s.options.Dial = new(net.Dialer).DialContext
	}
	s.roster.now = s.now
	s.levels = newLevels(&config)
	s.hedging = newHedging(config.HedgeAfter)
	for k := range s.limiters {
		s.limiters[k] = newLimiter(s.now)
	}
	s.pages = newLimiter(s.now)
	s.resize([kinds]int{reads: config.ReadsInFlight, writes: config.WritesInFlight}, 1)
	s.mu.state = State{Since: s.now(), Reason: "not connected yet"}
	s.ctx, s.stop = context.WithCancel(context.Background())
	var err error
	if s.metrics, err = newMetrics(s, o.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics of cassandra's session: %w", err)
	}
	s.background.Go(s.run)
	return s, nil
}

// closeLimit is how long Close waits for the driver, which may be busy for 10 s with a broken
// connection. After that, the driver ends on its own.
const closeLimit = 2 * time.Second

// Close ends the session. Statements in flight fail.
func (s *Session) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.background.Wait()
	s.replace(nil)
	done := make(chan struct{})
	go func() {
		s.closing.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeLimit):
	}
	s.metrics.unregister()
}

func (s *Session) closed() bool { return s.ctx.Err() != nil }

// spawn runs f in the background and returns true, or returns false if the session has ended.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed() {
		return false
	}
	s.background.Go(f)
	return true
}

// KeyspaceName is the name of the session's keyspace.
func (s *Session) KeyspaceName() string { return s.config.Keyspace }

// Datacenter is the data centre whose nodes are used, empty if all are.
func (s *Session) Datacenter() string { return s.config.Datacenter }

// LocalConsistency reports whether reads or writes count the replicas of one data
// centre only.
func (s *Session) LocalConsistency() bool {
	return strings.HasPrefix(s.config.ReadConsistency, "LOCAL_") || strings.HasPrefix(s.config.WriteConsistency, "LOCAL_")
}

// State returns the state of the session.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state
}

// Wait waits until a node answers, whether or not the keyspace exists. If ctx ends first, the
// error says why there is no connection.
func (s *Session) Wait(ctx context.Context) error {
	for {
		changed, state := s.changed.Next(), s.State()
		if state.Connected {
			return nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return store.ErrClosed
		case <-ctx.Done():
			return &store.UnavailableError{Reason: "cassandra at " + strings.Join(s.config.Hosts, ", ") + " cannot be used: " + state.Reason, Err: context.Cause(ctx)}
		}
	}
}

const (
	reconnectMin = 200 * time.Millisecond
	reconnectMax = 5 * time.Second
	redialEvery  = 500 * time.Millisecond // to a node that is down, so that a short outage ends within outage_grace
	watchEvery   = time.Second
	watchAway    = 250 * time.Millisecond // while no node answers
	pingAfter    = 2 * time.Second        // time without an answer
	rebuildAfter = 30 * time.Second       // time without any node
	tellEvery    = time.Minute            // how often a missing connection is logged
	pings        = 3                      // to different nodes, as far as they answer
)

// run connects, and then watches the connection.
func (s *Session) run() {
	wait := reconnectMin
	for !s.closed() {
		s.mu.Lock()
		connected := s.mu.conn != nil
		s.mu.Unlock()
		if connected {
			s.watch()
			every := watchEvery
			if state := s.State(); !state.Connected && s.now().Sub(state.Since) < rebuildAfter {
				every = watchAway
			}
			select {
			case <-time.After(every):
			case <-s.created:
			case <-s.ctx.Done():
			}
			wait = reconnectMin
			continue
		}
		if err := s.connect(); err != nil {
			s.away(explain(err, s.config), s.now())
			work.Pause(s.ctx, wait/2+rand.N(wait/2))
			wait = min(2*wait, reconnectMax)
		}
	}
}

// connect opens a session of the driver, with the keyspace if it exists. It replaces the
// previous session.
func (s *Session) connect() error {
	c, err := s.dial(s.config.Datacenter, true)
	if err != nil {
		// The driver does not report a missing keyspace reliably, so look for it.
		bare, bareErr := s.dial(s.config.Datacenter, false)
		if bareErr != nil {
			return cmp.Or(s.wrongDatacenter(), bareErr)
		}
		there, lookErr := s.lookForKeyspace(bare)
		if lookErr != nil || there {
			s.end(bare)
			return errors.Join(err, lookErr)
		}
		c = bare
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.config.ConnectTimeout)
	defer cancel()
	err = c.driver.Query(askAnything).Consistency(gocql.One).ScanContext(ctx, &c.version)
	if err != nil {
		s.end(c)
		return err
	}
	s.replace(c)
	s.metrics.reconnects.Inc()
	s.resizeTo(c)
	s.answered()
	return nil
}

// wrongDatacenter returns an error if the cluster has nodes, but none in the configured data
// centre. The driver's own error does not say that.
func (s *Session) wrongDatacenter() error {
	if s.config.Datacenter == "" {
		return nil
	}
	c, err := s.dial("", false)
	if err != nil {
		return nil
	}
	defer s.end(c)
	ctx, cancel := context.WithTimeout(s.ctx, s.config.ConnectTimeout)
	defer cancel()
	nodes, err := listNodes(ctx, c.driver)
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.Datacenter] = true
	}
	if err != nil || there[s.config.Datacenter] {
		return nil
	}
	return fmt.Errorf("no node is in data centre %s; the cluster has %s: set cassandra.datacenter to one of them",
		s.config.Datacenter, strings.Join(slices.Sorted(maps.Keys(there)), ", "))
}

func (s *Session) lookForKeyspace(c *connection) (bool, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.config.ReadTimeout)
	defer cancel()
	var name string
	err := c.driver.Query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", s.config.Keyspace).
		Consistency(gocql.One).ScanContext(ctx, &name)
	if errors.Is(err, gocql.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// dial opens a driver session with the nodes of a data centre, "" for those of all.
func (s *Session) dial(datacenter string, keyspace bool) (*connection, error) {
	c := s.config
	g := gocql.NewCluster(c.Hosts...)
	g.ProtoVersion = 4 // version 5 adds checksums to frames, which cost CPU and find little beyond those of TCP or TLS
	g.Port = defaultPort
	if keyspace {
		g.Keyspace = c.Keyspace
	}
	g.Consistency = s.levels[reads][Configured]
	g.NumConns = c.Connections
	g.Timeout = max(c.ReadTimeout, c.WriteTimeout)
	g.WriteTimeout = g.Timeout
	g.ConnectTimeout = c.ConnectTimeout
	g.PageSize = maxPage
	g.NextPagePrefetch = 0
	g.RetryPolicy = nextHost{max: 2}
	g.ReconnectionPolicy = &gocql.ExponentialReconnectionPolicy{MaxRetries: 3, InitialInterval: reconnectMin / 4, MaxInterval: reconnectMin / 2}
	g.ReconnectInterval = redialEvery
	g.MaxWaitSchemaAgreement = time.Millisecond // see agree
	g.MaxPreparedStmts, g.MaxRoutingKeyInfo = 2000, 2000
	g.Metadata.CacheMode = gocql.KeyspaceOnly
	g.Logger = driverLog{s.log}
	ctx, end := context.WithCancel(s.ctx)
	d := &dialer{ctx: ctx, config: c, dial: s.options.Dial, batches: &s.packed, roster: &s.roster, log: s.log}
	g.HostDialer = d
	if c.Compression {
		g.Compressor = lz4.LZ4Compressor{}
	}
	if c.Username != "" {
		g.AuthProvider = c.authenticator
	}
	var below gocql.HostSelectionPolicy = gocql.RoundRobinHostPolicy()
	if datacenter != "" {
		below = gocql.DCAwareRoundRobinPolicy(datacenter)
		g.HostFilter = gocql.DataCenterHostFilter(datacenter)
	}
	h := newHosts(below, c, s.now, s.roster.add, s.metrics.forget)
	g.PoolConfig.HostSelectionPolicy = h
	watcher := observer{s, h}
	g.QueryObserver, g.BatchObserver = watcher, watcher
	driver, err := g.CreateSession()
	if err != nil {
		end()
		d.ended.Store(true)
		return nil, err
	}
	return &connection{driver: driver, dialer: d, end: end, hosts: h, keyspace: keyspace}, nil
}

// nextHost lets the driver retry a statement at another node immediately if the connection
// broke or the node rejected it. Session.do retries after a pause.
type nextHost struct{ max int }

func (p nextHost) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= p.max }

func (nextHost) GetRetryType(err error) gocql.RetryType {
	switch classify(context.Background(), err) {
	case classTransport, classOverloaded, classServer:
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}

// observer records which node answered, with what result, and how fast.
type observer struct {
	session *Session
	hosts   *hosts
}

func (o observer) ObserveQuery(ctx context.Context, q gocql.ObservedQuery) {
	o.observe(ctx, q.Host, q.End.Sub(q.Start), q.Err)
}

func (o observer) ObserveBatch(ctx context.Context, b gocql.ObservedBatch) {
	o.observe(ctx, b.Host, b.End.Sub(b.Start), b.Err)
}

func (o observer) observe(ctx context.Context, h *gocql.HostInfo, took time.Duration, err error) {
	if h == nil {
		return
	}
	id, answered := h.HostID(), isAnswer(err)
	if answered {
		o.hosts.answered(id)
	}
	a := attemptOf(ctx)
	if a == nil {
		return
	}
	o.session.metrics.sent(h, a, answered)
	if a.scan {
		return
	}
	var timedOut bool
	switch c, cause := classify(ctx, err), context.Cause(ctx); {
	case errors.Is(cause, errWaits):
		return // not this node's fault
	case errors.Is(cause, errStalled), errors.Is(cause, errAttemptTimeout), c.congested():
		timedOut = true
	case c == classOK, c == classCanceled && took > o.hosts.goal: // it would have taken even longer
	default:
		return // says nothing about the node's pace
	}
	limit, why, changed := o.hosts.learn(id, a.kind, took, timedOut)
	if changed {
		o.session.metrics.paced(h, a.kind, limit, why)
		o.session.resizeNow(o.hosts)
	}
}

// replace makes c the current connection, and closes the previous one.
func (s *Session) replace(c *connection) {
	s.mu.Lock()
	before := s.mu.conn
	s.mu.conn = c
	s.mu.Unlock()
	if before != nil {
		s.end(before)
	}
}

// end closes a session of the driver in the background. A driver whose control connection
// reconnects while it is being closed never ends, and opens connections to nodes again. To prevent
// that, end first makes all dials and writes of the session fail.
func (s *Session) end(c *connection) {
	c.end()
	s.closing.Go(func() {
		c.driver.Close()
		c.dialer.ended.Store(true)
	})
}

func (s *Session) connection() (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.conn == nil {
		if s.mu.state.Reason != "" {
			return nil, fmt.Errorf("%w: %s", errNoSession, s.mu.state.Reason)
		}
		return nil, errNoSession
	}
	return s.mu.conn, nil
}

// address returns the address of the node with the given id, for messages.
func (c *connection) address(id string) string {
	for _, h := range c.driver.GetHosts() {
		if h.HostID() == id {
			return h.ConnectAddressAndPort()
		}
	}
	return "unknown"
}

// watch checks the connection once per second.
func (s *Session) watch() {
	s.mu.Lock()
	c, idle, connected, since := s.mu.conn, s.now().Sub(s.mu.answer), s.mu.state.Connected, s.mu.state.Since
	s.mu.Unlock()
	s.resizeTo(c)
	if c.hosts.suspects() > 0 {
		s.probe(c, watchEvery/2)
	}
	if !c.keyspace {
		if there, err := s.lookForKeyspace(c); err == nil && there {
			if err := s.connect(); err != nil {
				s.log.Debug("cassandra: opening the keyspace failed", "err", err)
			}
			return
		}
	}
	if !connected || idle >= pingAfter {
		s.ping()
	}
	if !connected && s.now().Sub(since) > rebuildAfter {
		// The nodes may have come back at other addresses.
		if err := s.connect(); err != nil {
			s.away(explain(err, s.config), s.now())
		}
	}
}

const askAnything = "SELECT release_version FROM system.local WHERE key = 'local'"

// ping sends a trivial statement to any node.
func (s *Session) ping() {
	var err error
	for range pings {
		a := &attempt{statement: "ping", patient: true, scan: true}
		err = s.attempt(s.ctx, a, s.config.ConnectTimeout, func(ctx context.Context, d *gocql.Session) error {
			var version string
			return d.Query(askAnything).Consistency(gocql.One).
				Idempotent(true).DefaultTimestamp(false).ScanContext(ctx, &version)
		})
		if !errors.Is(err, errStalled) {
			break
		}
	}
	if isAnswer(err) {
		s.answered()
		return
	}
	if !s.closed() {
		s.away(explain(err, s.config), s.now())
	}
}

// note updates the state from the outcome of a statement.
func (s *Session) note(c class, err error) {
	switch c {
	case classOK, classRefused, classTombstones, classUnavailable, classOverloaded, classServer:
		s.answered()
	case classNoHost:
		if !s.closed() && !errors.As(err, new(*outage)) && !errors.Is(err, errNoSession) && !errors.Is(err, gocql.ErrSessionClosed) {
			s.away(explain(err, s.config), s.now())
		}
	}
}

// answered records that a node has just answered.
func (s *Session) answered() {
	now := s.now()
	s.mu.Lock()
	s.mu.answer = now
	if s.mu.state.Connected || s.mu.conn == nil {
		s.mu.Unlock()
		return
	}
	s.mu.state.Connected, s.mu.state.Since, s.mu.state.Reason = true, now, ""
	s.mu.state.Keyspace, s.mu.state.Version = s.mu.conn.keyspace, s.mu.conn.version
	state := s.mu.state
	s.changed.Notify()
	s.mu.Unlock()
	s.log.Info("cassandra: connected", "version", state.Version, "keyspace", s.config.Keyspace, "keyspace_exists", state.Keyspace)
}

// away records that no node answers any more, for this reason.
func (s *Session) away(why string, since time.Time) {
	now := s.now()
	if stray := s.roster.strayed(); stray != nil {
		why += "; " + stray.Error()
	}
	s.mu.Lock()
	tell := s.mu.state.Connected || now.Sub(s.mu.told) >= tellEvery
	if s.mu.state.Connected {
		s.mu.state.Connected, s.mu.state.Since = false, since
	}
	if tell {
		s.mu.told = now
	}
	s.mu.state.Reason = why
	s.changed.Notify()
	s.mu.Unlock()
	if tell {
		s.log.Warn("cassandra: not connected", "hosts", strings.Join(s.config.Hosts, ","), "reason", why)
	}
}

// silence records that all connected nodes have stopped answering.
func (s *Session) silence(h *hosts) {
	if c, err := s.connection(); err == nil && c.hosts == h && s.State().Connected {
		since := h.lastSign()
		if since.IsZero() {
			since = s.now()
		}
		s.away("connected nodes do not answer", since)
	}
}

// An outage is the reason why a statement is not tried, or not retried.
type outage struct{ State }

func (o *outage) Error() string {
	return fmt.Sprintf("no node has answered since %s: %s", o.Since.UTC().Format(time.RFC3339), o.Reason)
}

// outage returns the present outage once it has lasted longer than reads wait for its
// end.
func (s *Session) outage() error {
	if state := s.State(); !state.Connected && s.now().Sub(state.Since) >= s.config.OutageGrace {
		return &outage{state}
	}
	return nil
}

// probe checks whether nodes that have not answered for a time are alive. Statements that wait
// for a node may just be slow.
func (s *Session) probe(c *connection, quiet time.Duration) {
	for _, h := range c.driver.GetHosts() {
		id := h.HostID()
		if !h.IsUp() || !c.hosts.beginProbe(id, quiet) {
			continue
		}
		s.spawn(func() {
			defer c.hosts.endProbe(id)
			ctx, cancel := context.WithTimeout(s.ctx, s.config.ConnectTimeout)
			defer cancel()
			var version string
			err := c.driver.Query(askAnything).Consistency(gocql.One).Idempotent(true).DefaultTimestamp(false).
				SetHostID(id).ScanContext(ctx, &version)
			if isAnswer(err) {
				s.answered()
			}
		})
	}
}

// resizeTo sets the limits according to the nodes.
func (s *Session) resizeTo(c *connection) {
	all := c.driver.GetHosts()
	up := 0
	for _, h := range all {
		if h.IsUp() {
			up++
		}
	}
	silent := c.hosts.suspects()
	s.mu.Lock()
	s.mu.state.Nodes, s.mu.state.Silent, s.mu.state.Keyspace = up, silent, c.keyspace
	s.mu.Unlock()
	s.resize([kinds]int{c.hosts.limit(reads, all), c.hosts.limit(writes, all)}, max(1, up))
}

// resizeNow does the same if h are the nodes of the current connection.
func (s *Session) resizeNow(h *hosts) {
	if c, err := s.connection(); err == nil && c.hosts == h {
		s.resizeTo(c)
	}
}

func (s *Session) resize(statements [kinds]int, nodes int) {
	for k, l := range s.limiters {
		l.resize(statements[k], int(s.config.BytesInFlight)*nodes)
	}
	s.pages.resize(math.MaxInt, pageRoom*nodes)
}

// explain describes why connecting failed and what to do.
func explain(err error, c Config) string {
	text := strings.TrimPrefix(err.Error(), "gocql: ")
	text = strings.TrimPrefix(text, "unable to create session: ")
	has := finder(text)
	switch {
	case has("authentication required"), has("no authenticator"):
		return "cassandra asks for a user and a password: set username and password_file (" + text + ")"
	case has("username and/or password are incorrect", "bad credentials", "failed to authenticate", "provided username"):
		return fmt.Sprintf("cassandra refuses the password of user %q: set the right one (%s)", c.Username, text)
	case has("first record does not look like a tls handshake"):
		return "the node does not speak TLS: unset tls.enabled, or name the port at which it does (" + text + ")"
	case has("x509", "certificate", "tls"):
		return "the TLS connection fails: see tls.ca_file, tls.cert_file and tls.verify_host (" + text + ")"
	case errors.Is(err, gocql.ErrNoConnections):
		return "no node is connected"
	case !c.TLS.Enabled && has("connection reset", "eof"):
		return "the node closes the connection: if it requires TLS, set tls.enabled (" + text + ")"
	case has("failed to resolve any"):
		return "no address is known for any of the hosts " + strings.Join(c.Hosts, ", ") + ": check the names, and the name service of this machine"
	case has("unsupported protocol response version", "which host id it has"):
		return "a program other than Cassandra answers: hosts must name the native_transport_port of nodes, by default 9042 (" + text + ")"
	case has("no response"):
		return "connections are accepted and nothing answers: the node hangs, or another program has its address (" + text + ")"
	}
	return text
}
