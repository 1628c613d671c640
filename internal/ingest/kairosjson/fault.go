package kairosjson

import (
	"fmt"
	"slices"

	"varve/internal/ingest"
)

// later keeps a fault of the metric for check to report. Its text follows the context.
func (p *parser) later(r ingest.Reason, format string, args ...any) {
	f := &ingest.Fault{Reason: r}
	if !p.enough() {
		f.Text = p.context() + fmt.Sprintf(format, args...)
	}
	p.pending = append(p.pending, f)
}

// refuseMetric reports a fault of the metric as a whole.
func (p *parser) refuseMetric(f *ingest.Fault) { p.tell(f, p.s.Bytes(p.m.start, p.m.end)) }

// refuseNames reports that the series of the metric cannot be stored.
func (p *parser) refuseNames(f *ingest.Fault) {
	p.refuseMetric(&ingest.Fault{Reason: f.Reason, Text: p.context() + ": " + f.Text, Err: f.Err})
}

// noteHeld counts a series that may be stored when it is sent again.
func (p *parser) noteHeld(f *ingest.Fault) {
	if f.Reason == ingest.NewSeriesRate {
		p.held++
	}
}

// refusePoint reports a fault of one point. If the metric as a whole is at fault, it reports that
// instead and returns errRefused. Texts of the sender among args must be brief.
func (p *parser) refusePoint(where point, r ingest.Reason, format string, args ...any) error {
	if where.listed {
		return p.refuse(where, r, "point", format, args...)
	}
	return p.refuse(where, r, "metric", "."+format, args...)
}

// refuse is refusePoint with a choice of the prefix: the point, the metric, or
// nothing. The answer numbers a point as KairosDB does, by the points accepted
// before it; /admin/rejected has its position in datapoints.
func (p *parser) refuse(where point, r ingest.Reason, of string, format string, args ...any) error {
	if !p.known() && !p.check() {
		return errRefused
	}
	if p.quiet(r) {
		return nil
	}
	f := &ingest.Fault{Reason: r, Text: fmt.Sprintf(format, args...)}
	switch of {
	case "point":
		text := f.Text
		f.Text = fmt.Sprintf("%s.datapoints[%d].%s", p.context(), p.m.accepted, text)
		if p.m.position != p.m.accepted {
			f.Detail = fmt.Sprintf("%s.datapoints[%d].%s", p.context(), p.m.position, text)
		}
	case "metric":
		f.Text = p.context() + f.Text
	}
	p.tell(f, p.s.Bytes(where.from, where.to))
	return nil
}

// known reports whether a series of the metric was found: then its names are
// valid.
func (p *parser) known() bool {
	return slices.ContainsFunc(p.m.aliases[:], func(a *ingest.Alias) bool { return a != nil })
}

// enough reports whether one more fault would neither be reported nor kept, so that it needs no
// text: a body may hold tens of millions of them.
func (p *parser) enough() bool {
	return (p.messages == maxMessages || p.answered >= p.most) && p.w.Noted()
}

// quiet counts a fault that is neither reported nor kept, and returns whether this is one.
func (p *parser) quiet(r ingest.Reason) bool {
	if !p.enough() {
		return false
	}
	p.w.Count(r)
	p.untold++
	return true
}

// tell counts a fault and puts it into the answer.
func (p *parser) tell(f *ingest.Fault, input []byte) {
	if p.quiet(f.Reason) {
		return
	}
	p.w.Reject(f, input)
	if p.messages == maxMessages || p.answered >= p.most {
		p.untold++
		return
	}
	text := ingest.Message(f.Text)
	p.told = append(p.told[:p.messages], text)
	p.messages++
	p.answered += len(text)
}

// answer returns the messages for the sender.
func (p *parser) answer() []string {
	told := p.told[:p.messages]
	if p.untold > 0 {
		told = append(told, fmt.Sprintf("and %d more faults, see /admin/rejected", p.untold))
	}
	return told
}
