package differential

// spoil puts a fault into a query.
func (g maker) spoil(q map[string]any) map[string]any {
	metric := q["metrics"].([]any)[0].(map[string]any)
	aggregator := func(a map[string]any) { metric["aggregators"] = []any{a} }
	group := func(b map[string]any) { metric["group_by"] = []any{b} }
	sampling := map[string]any{"value": 1, "unit": "hours"}
	faults := []func(){
		func() { delete(q, "metrics") },
		func() { q["metrics"] = []any{} },
		func() { delete(q, "start_absolute"); delete(q, "start_relative") },
		func() {
			delete(q, "start_relative")
			delete(q, "end_relative")
			q["start_absolute"], q["end_absolute"] = 2000, 1000
		},
		func() { delete(q, "start_absolute"); q["start_relative"] = map[string]any{"value": -1, "unit": "days"} },
		func() { delete(q, "start_absolute"); q["start_relative"] = map[string]any{"value": 1, "unit": "day"} },
		func() { delete(q, "start_absolute"); q["start_relative"] = map[string]any{"value": 1} },
		func() { q["cache_time"] = -1 },
		func() { q["time_zone"] = pick(g, "Mars/Phobos", "utc", "UTC+5", "PST") },
		func() { q["plugins"] = []any{map[string]any{"name": "x"}} },
		func() { delete(metric, "name") },
		func() { metric["name"] = "" },
		func() { metric["order"] = "up" },
		func() { metric["limit"] = "x" },
		func() { metric["tags"] = map[string]any{"host": ""} },
		func() { metric["tags"] = map[string]any{"": "a"} },
		func() { metric["tags"] = map[string]any{"host": []any{"a", ""}} },
		func() { metric["tags"] = map[string]any{"host": "regex:["} },
		func() { metric["plugins"] = []any{map[string]any{"name": "x"}} },
		func() { aggregator(map[string]any{"sampling": sampling}) },
		func() { aggregator(map[string]any{"name": "nothing"}) },
		func() {
			aggregator(map[string]any{"name": "sum", "sampling": map[string]any{"value": -1, "unit": "hours"}})
		},
		func() {
			aggregator(map[string]any{"name": "sum", "sampling": map[string]any{"value": 0, "unit": "hours"}})
		},
		func() {
			aggregator(map[string]any{"name": "sum", "sampling": map[string]any{"value": 1, "unit": "hour"}})
		},
		func() { aggregator(map[string]any{"name": "sum", "sampling": map[string]any{"value": 1}}) },
		func() { aggregator(map[string]any{"name": "sum", "sampling": sampling, "colour": 1}) },
		func() { aggregator(map[string]any{"name": "sum", "sampling": sampling, "time_zone": "Mars/Phobos"}) },
		func() { aggregator(map[string]any{"name": "div"}) },
		func() { aggregator(map[string]any{"name": "div", "divisor": 0}) },
		func() { aggregator(map[string]any{"name": "div", "divisor": "x"}) },
		func() { aggregator(map[string]any{"name": "percentile", "sampling": sampling}) },
		func() { aggregator(map[string]any{"name": "percentile", "sampling": sampling, "percentile": 1.5}) },
		func() { aggregator(map[string]any{"name": "score"}) },
		func() { aggregator(map[string]any{"name": "trim", "trim": "middle"}) },
		func() { aggregator(map[string]any{"name": "filter", "filter_op": "like"}) },
		func() { aggregator(map[string]any{"name": "filter"}) },
		func() { aggregator(map[string]any{"name": "sma"}) },
		func() { aggregator(map[string]any{"name": "rate", "unit": "hour"}) },
		func() { metric["aggregators"] = map[string]any{"name": "sum"} },
		func() { metric["aggregators"] = []any{"sum"} },
		func() { group(map[string]any{"tags": []any{"host"}}) },
		func() { group(map[string]any{"name": "nothing"}) },
		func() { group(map[string]any{"name": "tag"}) },
		func() { group(map[string]any{"name": "tag", "tags": []any{}}) },
		func() { group(map[string]any{"name": "time", "group_count": 2}) },
		func() { group(map[string]any{"name": "time", "range_size": sampling}) },
		func() {
			group(map[string]any{"name": "time", "group_count": 2, "range_size": map[string]any{"value": -1, "unit": "hours"}})
		},
		func() {
			group(map[string]any{"name": "time", "group_count": 2, "range_size": map[string]any{"value": 1, "unit": "hour"}})
		},
		func() { group(map[string]any{"name": "value"}) },
		func() { group(map[string]any{"name": "value", "range_size": 0}) },
		func() { group(map[string]any{"name": "bin"}) },
		func() { group(map[string]any{"name": "bin", "bins": []any{}}) },
	}
	pick(g, faults...)()
	return q
}
