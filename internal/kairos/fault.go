package kairos

import (
	"errors"
	"net/http"
	"strings"
)

// A fault is an error in a request. Each message goes into the answer.
//
// Where KairosDB answers 400, the messages are KairosDB's: clients compare them, and
// the golden cases pin them. Many do not name the member, so its path goes into a
// header. Where KairosDB answers 500, or with a meaningless text, the path is in the
// message too.
type fault struct {
	messages []string
	at       *value // the value that is wrong, nil if not known
	must     string // what at must be, if messages do not say so
	path     string // to at, set by locate
}

func (f *fault) Error() string { return strings.Join(f.messages, "; ") }

func badRequest(messages ...string) error { return &fault{messages: messages} }

// fault returns a fault in v.
func (v *value) fault(messages ...string) error { return &fault{messages: messages, at: v} }

// mustBe returns a fault whose text names neither the value nor what it must be. locate
// adds both.
func (v *value) mustBe(text, must string) error {
	return &fault{messages: []string{text}, at: v, must: must}
}

// locate sets the path of a fault in the request top.
func locate(top *value, err error) error {
	var f *fault
	if !errors.As(err, &f) || f.at == nil || f.path != "" {
		return err
	}
	f.path = top.pathTo(f.at)
	if f.must != "" && f.path != "" {
		separator := ": "
		if strings.HasSuffix(f.messages[0], ".") {
			separator = " "
		}
		f.messages[0] += separator + f.path + " must be " + f.must
	}
	return err
}

// HTTPStatus is the status of the answer.
func (f *fault) HTTPStatus() int { return http.StatusBadRequest }
