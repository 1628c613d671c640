package server

import (
	"bytes"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"varve/internal/gate"
	"varve/internal/httpapi"
	"varve/internal/principal"
)

const (
	// scrapesAtOnce limits how many pages of metrics are made at once.
	scrapesAtOnce = 8

	// scrapesUnsent limits how many pages of about 50 KB are made, or wait for clients to read
	// them. One part in scrapesShare of these is for senders that have no more than that part.
	scrapesUnsent = 512
	scrapesShare  = 8

	// scrapePatience is how long a client may take to read a page. Prometheus waits as long by
	// default.
	scrapePatience = 10 * time.Second
)

// A scraper serves the page of metrics. A page is completed before it is sent, so that clients that
// do not read occupy none of the places in which pages are made: a few of them would lock
// Prometheus out. A sender with many connections cannot lock it out either, because senders take
// turns.
type scraper struct {
	pages          http.Handler
	making, unsent *gate.Gate
}

// newScraper makes pages of what g gathers, and counts them in r.
func newScraper(r prometheus.Registerer, g prometheus.Gatherer) *scraper {
	return &scraper{
		pages:  promhttp.HandlerFor(g, promhttp.HandlerOpts{Registry: r}),
		making: gate.New(scrapesAtOnce),
		unsent: gate.NewReserving(scrapesUnsent, scrapesUnsent/scrapesShare),
	}
}

func (s *scraper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sender := principal.NetworkOf(r.RemoteAddr)
	if !s.unsent.TryEnter(sender, 1) {
		httpapi.WriteUnavailable(w, r, "clients have not read "+strconv.FormatInt(s.unsent.InUse(), 10)+" pages of metrics; each has "+scrapePatience.String()+" for it")
		return
	}
	defer s.unsent.Leave(sender, 1)
	p := page{header: http.Header{}, status: http.StatusOK}
	if err := s.make(&p, r, sender); err != nil {
		return // the client has left
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapePatience))
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.body.Len()))
	w.WriteHeader(p.status)
	w.Write(p.body.Bytes())
}

// make makes a page when it is the turn of its sender.
func (s *scraper) make(p *page, r *http.Request, sender netip.Prefix) error {
	if _, _, err := s.making.Enter(r.Context(), sender, 1); err != nil {
		return err
	}
	defer s.making.Leave(sender, 1)
	s.pages.ServeHTTP(p, r)
	return nil
}

// A page is an answer in memory.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) WriteHeader(status int)      { p.status = status }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }
