package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/internal/config"
	"varve/internal/failure"
	"varve/internal/principal"
	"varve/internal/retention"
)

// TestReloadOfRules: the files are read again although no setting has changed, an
// invalid file changes nothing, and the rules of a path are reported.
func TestReloadOfRules(t *testing.T) {
	var messages bytes.Buffer
	var policies []retention.PolicyConfig
	log := slog.New(slog.NewTextHandler(&messages, nil))
	path := filepath.Join(t.TempDir(), "storage-schemas.conf")
	write := func(stages string) {
		if err := os.WriteFile(path, []byte("[all]\npattern = .*\nretentions = "+stages+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("60s:1d")
	load := func() (*config.Loaded, error) {
		loaded := &config.Loaded{Config: config.Default()}
		loaded.Config.Graphite.StorageSchemas = path
		loaded.Config.Retention.Policies = slices.Clone(policies)
		return loaded, nil
	}
	shelf := retention.NewShelf((&retention.Book{}).For(principal.Default))
	r := NewReloader(config.Default(), load, log)
	r.AddFiles(ReloadedRules(map[string]*retention.Shelf{principal.Default: shelf}, log))
	reload := func(applied ...string) {
		t.Helper()
		if done, err := r.reload(); err != nil || !slices.Equal(done.Applied, applied) || len(done.NeedsRestart) > 0 {
			t.Errorf("%+v, %v; want %q applied", done, err, applied)
		}
	}
	reload("retention rules") // the setting is new
	reload()
	write("60s:1d,1h:1y")
	reload("retention rules")
	policies = []retention.PolicyConfig{{Name: "a", Metric: "b", Stages: "10s:1h", XFilesFactor: -1}}
	messages.Reset()
	reload("retention rules")
	if want := `tenant=default changes="retention.policies [a] added: 10s:1h"`; !strings.Contains(messages.String(), want) {
		t.Errorf("%s, want %s", messages.String(), want)
	}
	enforced := *shelf.Book()
	enforced.Enforced = true
	shelf.Put(&enforced)
	policies[0].Metric = ""
	messages.Reset()
	reload("retention rules")
	for _, want := range []string{"level=WARN", "hold=1h", "retention.policies [a] changed: 10s:1h if the metric is b is now 10s:1h if every series"} {
		if !strings.Contains(messages.String(), want) {
			t.Errorf("%s, want %s", messages.String(), want)
		}
	}
	if !shelf.Book().Enforced {
		t.Error("rules that were enforced are not any more, although that setting needs a restart")
	}
	policies[0].Stages = "soon"
	if _, err := r.reload(); failure.Of(err).Status != http.StatusBadRequest || !strings.Contains(err.Error(), "retention.policies[0].stages") {
		t.Errorf("a policy with a fault: %v", err)
	}
	policies = nil
	reload("retention rules")
	write("sixty")
	if _, err := r.reload(); failure.Of(err).Status != http.StatusBadRequest || !strings.Contains(err.Error(), path) {
		t.Errorf("a file with a fault: %v", err)
	}
	get := Policies(shelf, nil, true)[0].Handler
	for query, want := range map[string]string{
		"?path=a.b": `{"enforced":true,"rules":1,"paths":[{"path":"a.b","rule":"all","source":"storage-schemas.conf","why":"the path has .*","pattern":".*","stages":[{"step":"1m","keep":"1d","points":1440},{"step":"1h","keep":"1y","points":8760}],"method":"average","x_files_factor":0.5,"method_by":"the default"}]}`,
		"":          "name one to 1,000 paths",
		"?" + strings.Repeat("path=a&", maxPaths+1): "name one to 1,000 paths",
	} {
		w := httptest.NewRecorder()
		get.ServeHTTP(w, httptest.NewRequest("GET", "/admin/policies"+query, nil))
		if !strings.Contains(w.Body.String(), want) || (w.Code == 200) != strings.HasPrefix(want, "{") {
			t.Errorf("%.30s: %d %s", query, w.Code, w.Body)
		}
	}
}
