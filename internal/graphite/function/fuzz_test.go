package function

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/graphite/target"
	"varve/internal/work"
)

// plausible returns an argument that a parameter may be given.
func plausible(p Param) string {
	switch p.Type {
	case typeSeriesList, typeAny:
		return "a.*"
	case typeSeriesLists:
		return "mapSeries(a.*,0)"
	case typeAggFunc, typeAggOrSeriesFunc:
		return "'sum'"
	case typeInterval, typeIntOrInterval:
		return "'5min'"
	case typeDate:
		return "'-10min'"
	case typeBoolean:
		return "true"
	case typeString, typeTag:
		return "'a'"
	}
	return "2"
}

// FuzzEvaluate: no target makes a function panic, and none takes long.
func FuzzEvaluate(f *testing.F) {
	for _, fn := range All() {
		var required, all []string
		for _, p := range fn.Params {
			if p.Required {
				required = append(required, plausible(p))
			}
			all = append(all, plausible(p))
		}
		f.Add(fn.Name + "(" + strings.Join(required, ",") + ")")
		f.Add(fn.Name + "(" + strings.Join(all, ",") + ")")
		f.Add(fn.Name + "(" + strings.Join(append(all, "none", "1.5", "'x'"), ",") + ")")
		f.Add(fn.Name + "(" + strings.Join(strings.Fields("none none none"), ",") + ")")
		f.Add(fn.Name + "(b)")
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := target.Parse(text)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		until := time.Unix(1710072000, 0).UTC()
		budget := &limited{}
		budget.left.Store(16 << 20)
		request := &Request{From: until.Add(-time.Hour), Until: until, Now: until}
		list, err := Evaluate(ctx, &ramp{n: 3}, budget, request, []target.Expr{e})
		var fault *work.PanicError
		if errors.As(err, &fault) {
			t.Fatalf("%s: %v\n%s", text, err, fault.Stack)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: takes too long", text)
		}
		for _, s := range list {
			if s == nil || s.Step <= 0 || s.Tags == nil {
				t.Fatalf("%s: series %+v", text, s)
			}
		}
	})
}
