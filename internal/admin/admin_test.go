package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded"
	"varve/internal/embedded/offline"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
)

// TestRoutesOfTheOtherStore: servers have the same administrative routes over both
// kinds of store. Routes of the other kind answer 501 and name the replacement.
func TestRoutesOfTheOtherStore(t *testing.T) {
	names := func(routes []httpapi.Route) (all []string) {
		for _, r := range routes {
			all = append(all, r.Method+" "+r.Path)
		}
		slices.Sort(all)
		return all
	}
	overEmbedded := Embedded(nil, nil, nil)
	overCassandra := Cassandra(nil, nil, nil, nil)
	if a, b := names(overEmbedded), names(overCassandra); !slices.Equal(a, b) {
		t.Errorf("over the embedded store\n%q\nover Cassandra\n%q", a, b)
	}
	for _, c := range []struct {
		kind   string
		routes []httpapi.Route
		only   []foreignRoute
	}{
		{"Cassandra", overEmbedded, onlyCassandra},
		{"the embedded store", overCassandra, onlyEmbedded},
	} {
		for _, of := range c.only {
			i := slices.IndexFunc(c.routes, func(r httpapi.Route) bool { return r.Method == of.method && r.Path == of.path })
			w := httptest.NewRecorder()
			c.routes[i].Handler.ServeHTTP(w, httptest.NewRequest(of.method, of.path, nil))
			if got, want := w.Body.String(), of.path+" is for "+c.kind+"; "+of.instead; w.Code != http.StatusNotImplemented || !strings.Contains(got, want) {
				t.Errorf("%s %s: %d %s, want 501 %s", of.method, of.path, w.Code, got, want)
			}
		}
	}
}

// TestBackupNamesItsPlace makes a backup of a store in a relative directory. The answer
// has an absolute path, since the client may be in another directory.
func TestBackupNamesItsPlace(t *testing.T) {
	s, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := httptest.NewRecorder()
	backup(s, nil).ServeHTTP(w, httptest.NewRequest("POST", "/admin/backup", strings.NewReader(`{"dir":"one"}`)))
	var report offline.BackupReport
	if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil || !filepath.IsAbs(report.Dir) || !strings.HasSuffix(report.Dir, "data/backups/one") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A running check or compaction refuses further ones, which would otherwise wait and
// then repeat the same work.
func TestOneAtATime(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	h := oneAtATime("compaction", func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-end
	})
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/admin/compact", nil))
		return w
	}
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- ask() }()
	<-begun
	if w := ask(); w.Code != http.StatusConflict || w.Body.String() != `{"errors":["another compaction is running; try again when it is done"]}` {
		t.Errorf("a second one: %d %s", w.Code, w.Body)
	}
	end <- struct{}{}
	if w := <-first; w.Code != http.StatusOK {
		t.Errorf("the first one: %d", w.Code)
	}
	go func() { <-begun; end <- struct{}{} }()
	if w := ask(); w.Code != http.StatusOK {
		t.Errorf("one after it: %d", w.Code)
	}
}

// /admin/rejected shows the latest refused inputs, newest first, clipped.
func TestRejected(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	ask := func() (total int, list []ingest.Rejection) {
		w := httptest.NewRecorder()
		rejected(p)(w, httptest.NewRequest(http.MethodGet, "/admin/rejected", nil))
		var got struct {
			Total    int
			Rejected []ingest.Rejection
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Rejected == nil {
			t.Fatalf("%v in %s", err, w.Body)
		}
		return got.Total, got.Rejected
	}
	if total, list := ask(); total != 0 || len(list) != 0 {
		t.Errorf("before anything was refused: %d, %v", total, list)
	}
	for _, text := range []string{"first", "second\xff"} {
		p.Reject(p.Protocol("test"), "peer", ingest.Faultf(ingest.BadValue, "no"), []byte(text), 2)
	}
	if total, list := ask(); total != 4 || len(list) != 2 || list[0].Input != "second\ufffd" || list[1].Input != "first" || list[0].InputBytes != 7 {
		t.Errorf("%d, %+v", total, list)
	}
}

// A request for a backup is one object with a name, or without one. An error does not repeat a
// long body.
func TestBackupRequests(t *testing.T) {
	s, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	long := strings.Repeat("n", 3000)
	for body, want := range map[string]int{
		`{}`: 200, `{"dir":""}`: 200, ` {"dir":"a"} `: 200,
		``: 400, `null`: 400, `[]`: 400, `"a"`: 400, `{"dir":1}`: 400, `{"dir":"b"}{"dir":"c"}`: 400, `{"dir":"d"} x`: 400,
		`{"` + long + `":1}`: 400, `{"dir":"` + long + `"}`: 400, `{"dir":"../e"}`: 400, `{"dir":"` + long + long + `"}`: 400,
	} {
		w := httptest.NewRecorder()
		backup(s, nil).ServeHTTP(w, httptest.NewRequest("POST", "/admin/backup", strings.NewReader(body)))
		if w.Code != want || w.Body.Len() > 500 {
			t.Errorf("%.50s: %d %s, want %d", body, w.Code, w.Body, want)
		}
		if body == "" && !strings.HasSuffix(w.Body.String(), `or {} for a name made from the time: the body is empty"]}`) {
			t.Errorf("no body: %s", w.Body)
		}
	}
}
