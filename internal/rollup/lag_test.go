package rollup

import (
	"testing"
	"testing/synctest"
	"time"
)

// The status of a task has the progress of each metric that it reads.
func TestStatusOfEachSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer h.stop()
		sources := []string{"one", "two", "three"}
		rollups := ""
		for i, metric := range sources {
			h.put(metric, "a", 1, at(0, 0, 0))
			if i > 0 {
				rollups += ","
			}
			rollups += `{"save_as":"to-` + metric + `","query":{"start_absolute":1,"metrics":[{"name":"` + metric + `","aggregators":[{"name":"sum","sampling":` + minute + `}]}]}}`
		}
		h.do(200, "POST", "/api/v1/rollups", `{"id":"t","name":"n","execution_interval":`+minute+`,"rollups":[`+rollups+`]}`)
		time.Sleep(time.Minute + time.Second)
		st := h.status("t")
		if len(st.Statuses) != len(sources) {
			t.Fatalf("%+v", st)
		}
		for i, m := range st.Statuses {
			if m.MetricName != sources[i] || m.SaveAs != "to-"+sources[i] || m.Watermark == nil || *m.Watermark != at(0, 1, 0) || m.LagMS == nil || *m.LagMS != 1000 {
				t.Errorf("%+v", m)
			}
		}
	})
}
