package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// influxTarget is InfluxDB 1, as Debian packages it.
type influxTarget struct{}

// influx is a running InfluxDB.
type influx struct {
	*process
	dir       string
	http, put string
}

func (influxTarget) name() string { return "influx" }

func (influxTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "influxd", "influxdb", "version")
}

// influxConfig lifts limits that W2 would reach, turns off statistics and logs,
// and writes points to files a few seconds after the last one, not minutes.
const influxConfig = `
reporting-disabled = true
bind-address = "%[2]s"
[meta]
  dir = "%[1]s/meta"
[data]
  dir = "%[1]s/data"
  wal-dir = "%[1]s/wal"
  query-log-enabled = false
  cache-snapshot-write-cold-duration = "3s"
  compact-full-write-cold-duration = "3s"
  max-series-per-database = 0
  max-values-per-tag = 0
[monitor]
  store-enabled = false
[http]
  bind-address = "%[3]s"
  log-enabled = false
[[opentsdb]]
  enabled = true
  bind-address = "%[4]s"
  batch-size = 5000
[logging]
  level = "error"
  suppress-logo = true
`

func (influxTarget) start(ctx context.Context, dir string, _ mode) (server, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	s := &influx{dir: dir, http: addrs[1], put: addrs[2]}
	config := filepath.Join(dir, "influx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, influxConfig, dir, addrs[0], s.http, s.put), 0o644); err != nil {
		return nil, err
	}
	if s.process, err = startProcess(ctx, "influxd", "-config", config); err != nil {
		return nil, err
	}
	err = s.awaitReady(usualPatience, func() error {
		_, err := httpDo(ctx, http.MethodPost, "http://"+s.http+"/query?q=CREATE+DATABASE+opentsdb", nil, nil)
		return err
	})
	return s, err
}

func (s *influx) dataDirs() []string {
	return []string{filepath.Join(s.dir, "data"), filepath.Join(s.dir, "wal")}
}

func (s *influx) send(ctx context.Context, w workload, as form, n int) error {
	return sendOpenTSDB(ctx, w, as, n, s.put)
}

// stored adds up the points that the shards have accepted.
func (s *influx) stored(ctx context.Context) (int64, error) {
	text, err := httpGet(ctx, "http://"+s.http+"/debug/vars")
	if err != nil {
		return 0, err
	}
	var vars map[string]json.RawMessage
	if err := json.Unmarshal(text, &vars); err != nil {
		return 0, err
	}
	var sum int64
	for name, text := range vars {
		if !strings.HasPrefix(name, "shard:") {
			continue
		}
		var shard struct {
			Values struct {
				Written int64 `json:"writePointsOk"`
			}
		}
		if err := json.Unmarshal(text, &shard); err != nil {
			return 0, err
		}
		sum += shard.Values.Written
	}
	return sum, nil
}

// flush has nothing to do: points that a shard has accepted are visible.
func (s *influx) flush(context.Context) error { return nil }

// settle only waits: InfluxDB has no command to compact.
func (s *influx) settle(ctx context.Context) error {
	return s.awaitQuiet(ctx, s.dir, 5*time.Second, time.Minute)
}

func (s *influx) query(text string) request {
	values := url.Values{"db": {"opentsdb"}, "epoch": {"ms"}, "q": {text}}
	return request{method: http.MethodGet, url: "http://" + s.http + "/query?" + values.Encode()}
}

func (s *influx) counts(ctx context.Context, w workload, metric int) (map[string]int64, error) {
	q := question{startMS: w.startMS, endExcl: w.endMS(), host: allHosts}
	text, err := s.query(fmt.Sprintf(`SELECT count(value) FROM %q WHERE time >= %dms AND time < %dms GROUP BY host`,
		metricName(metric), q.startMS, q.endExcl)).do(ctx)
	if err != nil {
		return nil, err
	}
	a, err := s.read(q, text)
	return a.counted(), err
}

func (s *influx) request(q question) request {
	where := fmt.Sprintf("time >= %dms AND time < %dms", q.startMS, q.endExcl)
	if q.host != allHosts {
		where = fmt.Sprintf("host = '%s' AND %s", hostName(q.host), where)
	}
	what := map[kind]string{
		raw: "value", average: "mean(value)", maximum: "max(value)", total: "sum(value)", mean: "mean(value)", latestPoint: "last(value)",
	}[q.kind]
	group := " GROUP BY host"
	if q.kind == average {
		group = fmt.Sprintf(" GROUP BY time(%ds), host fill(none)", q.stepMS/1000)
	} else if q.kind.overHosts() {
		group = fmt.Sprintf(" GROUP BY time(%ds) fill(none)", q.stepMS/1000)
	}
	return s.query(fmt.Sprintf("SELECT %s FROM %q WHERE %s%s", what, metricName(q.metric), where, group))
}

func (s *influx) read(q question, text []byte) (answer, error) {
	var decoded struct {
		Results []struct {
			Error  string
			Series []struct {
				Tags   map[string]string
				Values [][2]float64
			}
		}
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, fmt.Errorf("answer of InfluxDB: %w", err)
	}
	a := make(answer)
	for _, r := range decoded.Results {
		if r.Error != "" {
			return nil, fmt.Errorf("answer of InfluxDB: %s", r.Error)
		}
		for _, series := range r.Series {
			host := series.Tags["host"]
			for _, value := range series.Values {
				ms := int64(value[0])
				if q.kind == latestPoint {
					ms = q.startMS
				}
				a[host] = append(a[host], sample{ms, value[1]})
			}
		}
	}
	return a, nil
}
