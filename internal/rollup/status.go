package rollup

import (
	"fmt"
	"time"

	"varve/internal/downsample"
)

// A status describes the last run of a task, in KairosDB's stored form.
type status struct {
	Statuses      []metricStatus `json:"statuses"`
	ExecutingHost string         `json:"executingHost"`
	NextScheduled string         `json:"nextScheduled"`
}

// A metricStatus is about one executed query.
type metricStatus struct {
	MetricName      string `json:"metricName"`
	LastExecuted    string `json:"lastExecuted"`
	DataPointCount  int64  `json:"dataPointCount"`
	ExecutionLength int64  `json:"executionLength"` // ms
	ErrorMessage    string `json:"errorMessage,omitempty"`
	LastExecution   int64  `json:"lastExecutionTime"` // ms since the Unix epoch
}

// A statusAnswer is a status as the API shows it. The members from save_as on are
// Varve's additions; they are omitted if KairosDB ran the task.
type statusAnswer struct {
	Statuses      []metricAnswer `json:"statuses"`
	ExecutingHost string         `json:"executing_host"`
	NextScheduled string         `json:"next_scheduled"`
}

type metricAnswer struct {
	MetricName      string `json:"metric_name"`
	LastExecuted    string `json:"last_executed"`
	DataPointCount  int64  `json:"data_point_count"`
	ExecutionLength int64  `json:"execution_length"`
	ErrorMessage    string `json:"error_message,omitempty"`
	LastExecution   int64  `json:"last_execution_time"`

	SaveAs    string `json:"save_as,omitempty"`
	Watermark *int64 `json:"watermark,omitempty"` // ms: all buckets before it are complete
	LagMS     *int64 `json:"lag,omitempty"`       // ms from the watermark to now
	Late      int    `json:"late,omitempty"`      // time ranges that wait to be recomputed
}

// dateText formats a time as KairosDB does, whose hours run from 0 to 11.
func dateText(t time.Time) string {
	t = t.UTC()
	return fmt.Sprintf("%s %02d:%s", t.Format("02 Jan 2006"), t.Hour()%12, t.Format("04:05 PM"))
}

// lastExecution is when the task last ran, 0 if never.
func (s *status) lastExecution() (ms int64) {
	for _, m := range s.Statuses {
		ms = max(ms, m.LastExecution)
	}
	return ms
}

// watermarks holds a task's watermarks by source.key. Until all its roll-ups have a watermark,
// the entry under [storedAt] says when the task was stored.
type watermarks map[string]downsample.Watermark

// storedAt is the key of no source.
const storedAt = ""

// firstRun is when a task first runs, or would have run if no server had been down or
// busy.
func (w watermarks) firstRun(t *task, now time.Time) time.Time {
	due := t.next(now)
	if m, ok := w[storedAt]; ok {
		if first := t.next(time.UnixMilli(m.RunMS)); first.Before(due) {
			return first
		}
	}
	return due
}
