package server

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"varve/internal/httpapi"
)

const (
	// scrapesAtOnce limits how many pages of metrics are made at once.
	scrapesAtOnce = 8

	// scrapesUnsent limits how many pages of about 50 KB wait for clients to read them.
	scrapesUnsent = 512

	// scrapePatience is how long a client may take to read a page. Prometheus waits as long by
	// default.
	scrapePatience = 10 * time.Second
)

// A scraper serves the page of metrics. A page is completed before it is sent, so that clients that
// do not read occupy none of the places in which pages are made: a few of them would lock
// Prometheus out.
type scraper struct {
	pages  http.Handler
	unsent chan struct{} // has an element for each page that is being sent
}

// newScraper makes pages of what g gathers, and counts them in r.
func newScraper(r prometheus.Registerer, g prometheus.Gatherer) *scraper {
	return &scraper{
		pages:  promhttp.HandlerFor(g, promhttp.HandlerOpts{Registry: r, MaxRequestsInFlight: scrapesAtOnce}),
		unsent: make(chan struct{}, scrapesUnsent),
	}
}

func (s *scraper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.unsent <- struct{}{}:
		defer func() { <-s.unsent }()
	default:
		httpapi.WriteUnavailable(w, r, "clients have not taken "+strconv.Itoa(scrapesUnsent)+" pages of metrics; each has "+scrapePatience.String()+" for it")
		return
	}
	p := page{header: http.Header{}, status: http.StatusOK}
	s.pages.ServeHTTP(&p, r)
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapePatience))
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.body.Len()))
	w.WriteHeader(p.status)
	w.Write(p.body.Bytes())
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
